"""Writer queue of the SQLite backend: order, timeouts, and failures."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, connection, transaction

from kgharvest.sqlite.base import WriterQueue
from tests.postgres import at_once

PATIENCE_S = 30


# The queue


def test_turns_are_granted_in_order_of_request():
    queue, granted = WriterQueue(), []
    first = queue.enter(PATIENCE_S)

    def write(number: int) -> None:
        turn = queue.enter(PATIENCE_S)
        granted.append(number)
        queue.leave(turn)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=write, args=[number]))
        threads[-1].start()
        while len(queue) < number + 2:  # until the thread is in the queue
            threads[-1].join(0.001)
    assert granted == []
    queue.leave(first)
    for thread in threads:
        thread.join(PATIENCE_S)

    assert granted == [0, 1, 2, 3, 4]
    assert len(queue) == 0


def test_a_waiting_writer_continues_after_the_timeout():
    queue = WriterQueue()
    queue.enter(PATIENCE_S)

    late = queue.enter(0.01)
    queue.leave(late)

    assert len(queue) == 1


def test_a_dead_thread_is_removed_from_the_queue():
    queue = WriterQueue()
    dead = threading.Thread(target=queue.enter, args=[PATIENCE_S])
    dead.start()
    dead.join()

    queue.leave(queue.enter(PATIENCE_S))

    assert len(queue) == 0


# The backend


@pytest.fixture
def queue(transactional_db):
    if connection.vendor != "sqlite":
        pytest.skip("SQLite only")
    yield connection._queue
    assert len(connection._queue) == 0  # no thread is left in the queue


def add_group(name: str) -> None:
    Group.objects.create(name=name)


def test_many_threads_write_in_nested_transactions(queue):
    def write(thread: int) -> None:
        for number in range(5):
            with transaction.atomic():
                add_group(f"{thread}-{number}")
                with transaction.atomic(), pytest.raises(IntegrityError), transaction.atomic():
                    add_group(f"{thread}-{number}")
            Group.objects.filter(name=f"{thread}-{number}").update(name=f"{thread}+{number}")  # needs a separate turn

    at_once(*(lambda thread=thread: write(thread) for thread in range(8)))

    assert Group.objects.filter(name__contains="+").count() == 40


def test_an_error_ends_the_turn(queue):
    with suppress(ZeroDivisionError), transaction.atomic():
        add_group("undone")
        raise ZeroDivisionError

    assert len(queue) == 0
    assert not Group.objects.exists()


def test_a_failed_commit_ends_the_turn(queue):
    with pytest.raises(IntegrityError), transaction.atomic():
        Group.permissions.through.objects.create(group_id=1, permission_id=999_999)  # checked on commit

    assert len(queue) == 0


def test_closing_a_connection_within_a_transaction_ends_the_turn(queue):
    with transaction.atomic():
        add_group("undone")
        connection.close()
        assert len(queue) == 0

    assert not Group.objects.exists()


def test_a_failed_write_without_a_transaction_ends_the_turn(queue):
    add_group("one")

    with pytest.raises(IntegrityError):
        Group.objects.bulk_create([Group(name="one")])
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("INSERT INTO nowhere VALUES (1)")

    assert len(queue) == 0


def test_a_long_read_does_not_block_writers(queue):
    Group.objects.bulk_create([Group(name=str(number)) for number in range(3)])
    names = Group.objects.order_by("name").values_list("name", flat=True).iterator(chunk_size=1)
    assert next(names) == "0"

    at_once(lambda: add_group("meanwhile"))

    assert list(names) == ["1", "2"]  # the state at the start of the read
    assert Group.objects.count() == 4


def test_a_child_process_has_an_empty_queue(queue):
    with transaction.atomic():
        pid = os.fork()
        if not pid:
            os._exit(len(connection._queue))

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
