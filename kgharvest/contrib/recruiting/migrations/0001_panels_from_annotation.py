"""The models of panels and pay; their tables and content types came from `annotation`, released in its migration 0035."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import kgharvest.contrib.recruiting.panels.links
import kgharvest.contrib.recruiting.panels.models
from django.conf import settings
from django.db import migrations, models


MODELS = ["panel", "submission", "panelevent", "platformcommand", "payentry"]


def move_content_types(apps, schema_editor, old_app, new_app):
    """Keep the ids of content types, so that their permissions and log entries remain."""
    types = apps.get_model("contenttypes", "ContentType").objects.using(schema_editor.connection.alias)
    for model in MODELS:
        if not types.filter(app_label=new_app, model=model).exists():
            types.filter(app_label=old_app, model=model).update(app_label=new_app)


def to_this_app(apps, schema_editor):
    move_content_types(apps, schema_editor, "annotation", "recruiting")


def to_annotation(apps, schema_editor):
    move_content_types(apps, schema_editor, "recruiting", "annotation")


class Migration(migrations.Migration):

    initial = True

    safe_while_the_last_release_runs = "The last release reads no content type of panels."
    dependencies = [
        ('contenttypes', '0002_remove_content_type_name'),
        ('annotation', '0035_panels_to_recruiting'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name='Panel',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('name', models.SlugField(help_text='Letters, digits, - and _; the round has no other panel of it.', max_length=100)),
                        ('platform', models.CharField(choices=[('link', 'Any panel, by link'), ('connect', 'CloudResearch Connect'), ('sona', 'SONA Systems'), ('prolific', 'Prolific'), ('mturk', 'Amazon Mechanical Turk (closed)')], default='link', max_length=8)),
                        ('status', models.CharField(choices=[('draft', 'Draft'), ('published', 'Published'), ('paused', 'Paused'), ('stopped', 'Stopped')], default='draft', editable=False, max_length=9)),
                        ('ended_reason', models.CharField(blank=True, editable=False, max_length=500)),
                        ('token', models.CharField(default=kgharvest.contrib.recruiting.panels.models.new_entry_token, editable=False, max_length=32, unique=True)),
                        ('places', models.PositiveIntegerField(default=10, help_text='People who are paid.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100000)])),
                        ('statements_per_place', models.PositiveIntegerField(default=50, help_text='After so many judgments, gold among them, a person is done and gets the completion code.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100000)], verbose_name='statements per person')),
                        ('currency', models.CharField(default='USD', max_length=3, validators=[django.core.validators.RegexValidator('\\A[A-Z]{3}\\Z', 'Give three capital letters, such as USD.')])),
                        ('reward', models.PositiveIntegerField(default=0, help_text='For one place, in cents.', validators=[django.core.validators.MaxValueValidator(1000000)])),
                        ('screen_out_reward', models.PositiveIntegerField(default=0, help_text='In cents, for the time it took.', validators=[django.core.validators.MaxValueValidator(1000000)], verbose_name='reward of whom a check turns away')),
                        ('estimated_minutes', models.PositiveIntegerField(default=10, help_text='For one place.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1440)])),
                        ('hourly_floor', models.PositiveIntegerField(default=0, help_text='In cents, on active time: below it the panel pauses and says which bonus makes it good.', validators=[django.core.validators.MaxValueValidator(1000000)], verbose_name='lowest hourly pay')),
                        ('participant_parameter', models.CharField(default='participant', max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z][A-Za-z0-9_.-]*\\Z', 'Give a name of letters, digits, _, . and -.')])),
                        ('study_parameter', models.CharField(blank=True, default='study', max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z][A-Za-z0-9_.-]*\\Z', 'Give a name of letters, digits, _, . and -.')])),
                        ('session_parameter', models.CharField(blank=True, default='session', max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z][A-Za-z0-9_.-]*\\Z', 'Give a name of letters, digits, _, . and -.')])),
                        ('completion_code', models.CharField(blank=True, help_text='Shown once the last statement is judged, and never before.', max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z0-9_-]+\\Z', 'Give a code of letters, digits, - and _.')])),
                        ('screen_out_code', models.CharField(blank=True, max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z0-9_-]+\\Z', 'Give a code of letters, digits, - and _.')], verbose_name='code of whom a check turns away')),
                        ('quota_full_code', models.CharField(blank=True, max_length=50, validators=[django.core.validators.RegexValidator('\\A[A-Za-z0-9_-]+\\Z', 'Give a code of letters, digits, - and _.')], verbose_name='code of who comes too late')),
                        ('completion_url', models.CharField(blank=True, help_text='Where people go from here, with {code}, {participant}, {study} and {session} where wanted.', max_length=500, validators=[kgharvest.contrib.recruiting.panels.links.check_return_address], verbose_name='return address')),
                        ('screen_out_url', models.CharField(blank=True, max_length=500, validators=[kgharvest.contrib.recruiting.panels.links.check_return_address], verbose_name='return address of whom a check turns away')),
                        ('quota_full_url', models.CharField(blank=True, max_length=500, validators=[kgharvest.contrib.recruiting.panels.links.check_return_address], verbose_name='return address of who comes too late')),
                        ('is_sandbox', models.BooleanField(default=True, help_text='Trial run. On Mechanical Turk: nobody was paid.', verbose_name='sandbox')),
                        ('external_id', models.CharField(blank=True, editable=False, max_length=100)),
                        ('platform_options', models.JSONField(blank=True, default=dict)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('reconciled_at', models.DateTimeField(blank=True, editable=False, null=True)),
                        ('reconcile_error', models.CharField(blank=True, editable=False, max_length=300)),
                        ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('round', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='panels', to='annotation.round')),
                    ],
                    options={
                        'db_table': 'annotation_panel',
                        'ordering': ['pk'],
                    },
                ),
                migrations.CreateModel(
                    name='PanelEvent',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('platform', models.CharField(choices=[('link', 'Any panel, by link'), ('connect', 'CloudResearch Connect'), ('sona', 'SONA Systems'), ('prolific', 'Prolific'), ('mturk', 'Amazon Mechanical Turk (closed)')], max_length=8)),
                        ('event_id', models.CharField(max_length=200)),
                        ('event_type', models.CharField(blank=True, max_length=100)),
                        ('body', models.TextField()),
                        ('received_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('handled_at', models.DateTimeField(blank=True, null=True)),
                        ('n_tries', models.PositiveIntegerField(default=0)),
                        ('next_try_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('outcome', models.CharField(blank=True, max_length=30)),
                        ('error', models.CharField(blank=True, max_length=300)),
                    ],
                    options={
                        'db_table': 'annotation_panelevent',
                        'ordering': ['pk'],
                        'indexes': [models.Index(condition=models.Q(('handled_at', None)), fields=['next_try_at'], name='panel_event_due')],
                        'constraints': [models.UniqueConstraint(fields=('platform', 'event_id'), name='panel_event_id_unique')],
                    },
                ),
                migrations.CreateModel(
                    name='Submission',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('participant', models.TextField()),
                        ('participant_digest', models.CharField(max_length=64)),
                        ('session', models.TextField(blank=True)),
                        ('study', models.CharField(blank=True, max_length=200)),
                        ('session_digest', models.CharField(max_length=64)),
                        ('browser_digest', models.CharField(blank=True, db_default='', default='', max_length=64)),
                        ('status', models.CharField(choices=[('active', 'Active'), ('completed', 'completed, not reviewed'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('returned', 'Returned'), ('timed out', 'Timed Out'), ('screened out', 'Screened Out')], default='active', max_length=12)),
                        ('platform_status', models.CharField(blank=True, max_length=30)),
                        ('platform_status_at', models.DateTimeField(blank=True, null=True)),
                        ('entered_at', models.DateTimeField()),
                        ('completed_at', models.DateTimeField(blank=True, null=True)),
                        ('ended_at', models.DateTimeField(blank=True, null=True)),
                        ('approves_itself_at', models.DateTimeField(blank=True, null=True)),
                        ('annotator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='submissions', to='annotation.annotator')),
                        ('panel', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='submissions', to='recruiting.panel')),
                    ],
                    options={
                        'db_table': 'annotation_submission',
                        'ordering': ['pk'],
                    },
                ),
                migrations.CreateModel(
                    name='PlatformCommand',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('kind', models.CharField(choices=[('approve', 'Approve'), ('reject', 'Reject'), ('return', 'ask to return'), ('screen_out', 'screen out'), ('bonus', 'Bonus')], max_length=10)),
                        ('key', models.CharField(max_length=100)),
                        ('amount', models.PositiveIntegerField(default=0)),
                        ('message', models.TextField(blank=True, max_length=2000)),
                        ('category', models.CharField(blank=True, max_length=50)),
                        ('state', models.CharField(choices=[('waiting', 'Waiting'), ('done', 'Done'), ('uncertain', 'Uncertain'), ('failed', 'Failed')], default='waiting', max_length=9)),
                        ('external_id', models.CharField(blank=True, max_length=100)),
                        ('n_tries', models.PositiveIntegerField(default=0)),
                        ('next_try_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('error', models.CharField(blank=True, max_length=500)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('done_at', models.DateTimeField(blank=True, null=True)),
                        ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('submission', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='commands', to='recruiting.submission')),
                    ],
                    options={
                        'db_table': 'annotation_platformcommand',
                        'ordering': ['pk'],
                    },
                ),
                migrations.CreateModel(
                    name='PayEntry',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('side', models.CharField(choices=[('owed', 'Owed'), ('paid', 'Paid')], max_length=4)),
                        ('purpose', models.CharField(choices=[('reward', 'Reward'), ('screen_out', 'for whom a check turned away'), ('bonus', 'Bonus')], max_length=10)),
                        ('key', models.CharField(max_length=100)),
                        ('amount', models.IntegerField()),
                        ('reason', models.CharField(max_length=500)),
                        ('at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('event', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='recruiting.panelevent')),
                        ('panel', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pay_entries', to='recruiting.panel')),
                        ('command', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='recruiting.platformcommand')),
                        ('submission', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pay_entries', to='recruiting.submission')),
                    ],
                    options={
                        'verbose_name_plural': 'pay entries',
                        'db_table': 'annotation_payentry',
                        'ordering': ['pk'],
                    },
                ),
                migrations.AddConstraint(
                    model_name='panel',
                    constraint=models.UniqueConstraint(fields=('round', 'name'), name='panel_round_name_unique'),
                ),
                migrations.AddConstraint(
                    model_name='panel',
                    constraint=models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('platform', 'external_id'), name='panel_external_id_unique'),
                ),
                migrations.AddConstraint(
                    model_name='panel',
                    constraint=models.CheckConstraint(condition=models.Q(('status__in', ['draft', 'published', 'paused', 'stopped'])), name='panel_status_known'),
                ),
                migrations.AddIndex(
                    model_name='submission',
                    index=models.Index(fields=['panel', 'status'], name='submission_panel_status'),
                ),
                migrations.AddConstraint(
                    model_name='submission',
                    constraint=models.UniqueConstraint(fields=('panel', 'session_digest'), name='submission_panel_session_unique'),
                ),
                migrations.AddConstraint(
                    model_name='submission',
                    constraint=models.CheckConstraint(condition=models.Q(('status__in', ['active', 'completed', 'approved', 'rejected', 'returned', 'timed out', 'screened out'])), name='submission_status_known'),
                ),
                migrations.AddConstraint(
                    model_name='submission',
                    constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['active', 'completed', 'approved'])), fields=('panel', 'participant_digest'), name='submission_participant_holds_one_place'),
                ),
                migrations.AddIndex(
                    model_name='platformcommand',
                    index=models.Index(condition=models.Q(('state', 'waiting')), fields=['next_try_at'], name='platform_command_due'),
                ),
                migrations.AddConstraint(
                    model_name='platformcommand',
                    constraint=models.UniqueConstraint(fields=('submission', 'key'), name='platform_command_key_unique'),
                ),
                migrations.AddConstraint(
                    model_name='platformcommand',
                    constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['approve', 'reject', 'return', 'screen_out']), ('state__in', ['waiting', 'done'])), fields=('submission',), name='platform_command_ends_a_submission_once'),
                ),
                migrations.AddConstraint(
                    model_name='payentry',
                    constraint=models.UniqueConstraint(fields=('submission', 'side', 'key'), name='pay_entry_key_unique'),
                ),
            ]
        ),
        migrations.RunPython(to_this_app, to_annotation),
    ]
