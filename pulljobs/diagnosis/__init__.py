"""Why jobs wait: of the whole (`doctor`) and of one (`explain`)."""
