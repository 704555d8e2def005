"""The probes' models; their tables came from the app `evaluation`, renamed by its migration 0007."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('evaluation', '0007_probes_to_probing'),
        ('kgharvest', '0007_worker_processes'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[
        migrations.CreateModel(
            name='Probe',
            fields=[
                ('job_ptr', models.OneToOneField(auto_created=True, on_delete=django.db.models.deletion.CASCADE, parent_link=True, primary_key=True, serialize=False, to='kgharvest.job')),
                ('name', models.CharField(max_length=200)),
                ('methods', models.JSONField()),
                ('facts', models.CharField(max_length=200)),
                ('revision', models.CharField(blank=True, max_length=100)),
                ('code_version', models.CharField(blank=True, max_length=100)),
                ('vocabulary', models.CharField(default='full', max_length=300)),
                ('document', models.JSONField(default=dict)),
                ('language_model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='probes', to='kgharvest.languagemodel')),
            ],
            bases=('kgharvest.job',),
        ),
        migrations.CreateModel(
            name='ProbedRelation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('type', models.CharField(max_length=5)),
                ('prompts', models.JSONField()),
                ('facts', models.JSONField()),
                ('fault', models.TextField(blank=True)),
                ('probe', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='relations', to='probing.probe')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='ProbeRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('method', models.CharField(max_length=30)),
                ('is_control', models.BooleanField()),
                ('n_train', models.PositiveIntegerField()),
                ('n_dev', models.PositiveIntegerField()),
                ('n_test', models.PositiveIntegerField()),
                ('left_out', models.JSONField()),
                ('p1', models.FloatField()),
                ('p10', models.FloatField()),
                ('mrr', models.FloatField()),
                ('nll', models.FloatField()),
                ('dev_nll', models.FloatField()),
                ('n_prompts', models.PositiveIntegerField()),
                ('effective_prompts', models.FloatField(null=True)),
                ('n_parameters', models.PositiveBigIntegerField()),
                ('forwards', models.PositiveBigIntegerField()),
                ('seconds', models.FloatField()),
                ('combine', models.CharField(blank=True, max_length=10)),
                ('temperature', models.FloatField(null=True)),
                ('relation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='records', to='probing.probedrelation')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='LearnedPrompt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.TextField()),
                ('rewritten_from', models.TextField(blank=True)),
                ('weight', models.FloatField()),
                ('segments', models.JSONField(default=list)),
                ('slots', models.JSONField(default=list)),
                ('vectors', models.BinaryField(blank=True)),
                ('nearest', models.JSONField(default=list)),
                ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prompts', to='probing.proberecord')),
            ],
            options={
                'ordering': ['-weight', 'pk'],
            },
        ),
        migrations.AddConstraint(
            model_name='probedrelation',
            constraint=models.UniqueConstraint(fields=('probe', 'name'), name='probed_relation_probe_name_unique'),
        ),
        migrations.AddConstraint(
            model_name='proberecord',
            constraint=models.UniqueConstraint(fields=('relation', 'method', 'is_control'), name='probe_record_relation_method_unique'),
        ),
        ]),
    ]
