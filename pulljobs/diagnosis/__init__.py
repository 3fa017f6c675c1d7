"""Why jobs wait: of the whole (`doctor`) and of one (`explain`); and what happened to one."""
