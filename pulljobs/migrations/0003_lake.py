from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('pulljobs', '0002_keys_limits_and_requests'),
    ]

    operations = []
