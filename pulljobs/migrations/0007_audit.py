from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0006_rollups'),
    ]

    operations = []
