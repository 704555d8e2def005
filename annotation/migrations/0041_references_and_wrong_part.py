from django.db import migrations, models


class Migration(migrations.Migration):

    safe_while_the_last_release_runs = "The last release does not write the new column, so the constraint holds."

    dependencies = [
        ('annotation', '0040_cluster_size'),
    ]

    operations = [
        migrations.AddField(
            model_name='judgment',
            name='opened_reference',
            field=models.BooleanField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='judgment',
            name='wrong_part',
            field=models.CharField(blank=True, db_default='', default='', max_length=8),
        ),
        migrations.AddField(
            model_name='judgmenttask',
            name='additions',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='round',
            name='asks_wrong_part',
            field=models.BooleanField(db_default=False, default=False, help_text='After the answer False, annotators choose the wrong part: one of the entities, or the relation.', verbose_name='ask which part is wrong'),
        ),
        migrations.AddField(
            model_name='round',
            name='imported_references',
            field=models.BooleanField(db_default=False, default=False, help_text='Shows the references of imported tuples. Not available with gold, which has no imported references.', verbose_name='show imported references'),
        ),
        migrations.AddField(
            model_name='round',
            name='reference_links',
            field=models.TextField(blank=True, db_default='', default='', help_text='Links under each statement, one per line: an optional name and a URL with {head}, {tail}, {entity}, {relation}, or {statement}. Example: Wikipedia https://en.wikipedia.org/w/index.php?search={head}+{tail}', max_length=20000, verbose_name='reference links'),
        ),
        migrations.AddConstraint(
            model_name='judgment',
            constraint=models.CheckConstraint(condition=models.Q(('wrong_part', ''), models.Q(('label', 'false'), ('wrong_part__in', ['0', '1', '2', '3', '4', '5', '6', '7', '8', 'relation'])), _connector='OR'), name='judgment_wrong_part_of_false'),
        ),
    ]
