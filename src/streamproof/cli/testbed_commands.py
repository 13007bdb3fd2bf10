"""``streamproof setup``, ``testbed``, ``heal``, ``down``: what runs here."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from streamproof.cli.terminal import JsonOption, say
from streamproof.errors import BadInput
from streamproof.testbed import embedded, hosts

testbed_app = typer.Typer(help="The embedded testbed: Kafka, Toxiproxy and Spark on this machine.", no_args_is_help=True)


def setup(
    engine: Annotated[
        str | None, typer.Argument(help="An engine that runs beside Spark, as flink; what every run needs when absent.")
    ] = None,
) -> None:
    """Put in place what the testbed runs (Java, jars, Toxiproxy), and try it with one small job; or what an ENGINE needs. Needed once."""
    from streamproof.run import set_up

    if engine is None:
        set_up.set_up(lambda line: say(line))
    else:
        set_up.set_up_engine(engine, lambda line: say(line))


def heal(force: Annotated[bool, typer.Option("--force", help="Also end a run that seems to be alive.")] = False) -> None:
    """Clean up after runs that were killed: their drivers, toxics, failpoints, open transactions, topics and the lock."""
    from streamproof.run import healing, lock, stages

    if embedded.started() is None:
        say("no testbed is up: nothing to heal")
        return
    holder = lock.holder()
    if holder is not None and not lock.is_stale(holder) and not force:
        raise lock.TestbedBusy(f"run {holder.run} ({holder.folder}) seems to be at work: wait for it, or end it too with --force")
    left = healing.unrestored()
    for folder in left:
        stages.abort(folder, "healed after its runner was gone")
    names = sorted({folder.name for folder in left} | set(healing.heal_all()))
    embedded.up()
    say(f"healed {', '.join(names) if names else 'the testbed'}: no toxic, no driver, no open transaction of a run is left")


def down() -> None:
    """Stop everything that was started here: testbed, Airflow, runs."""
    say(f"ended {embedded.down()} processes")


@testbed_app.command("up")
def start_testbed(
    brokers: Annotated[int | None, typer.Option(help="Brokers of Kafka: 1 or 3; as it is, or 1, when absent.")] = None,
) -> None:
    """Start what is not running, and wait until all of it is ready. With another number of brokers Kafka is made anew."""
    from streamproof.run import lock

    if brokers not in (None, 1, 3):
        raise BadInput(f"--brokers: expected 1 or 3, came {brokers}")
    holder = lock.holder()
    if brokers is not None and holder is not None and len(embedded.up().kafka) != brokers:
        raise lock.TestbedBusy(f"run {holder.run} ({holder.folder}) holds the testbed: Kafka cannot be made anew under it")
    testbed = embedded.up(lambda line: say(line), brokers)
    say(f"Kafka {testbed.direct_kafka}, through proxies {testbed.driver_kafka} (driver) and {testbed.executors_kafka} (executors)")
    say(f"PostgreSQL {hosts.of('postgres')}:{testbed.postgres.direct}, through the proxy {testbed.links[embedded.POSTGRES_PROXY]}")
    say(f"{testbed.spark_master}; Toxiproxy {hosts.of('toxiproxy')}:{testbed.toxiproxy_port}")


@testbed_app.command("down")
def stop_testbed() -> None:
    """Stop the testbed (and Airflow, and every run)."""
    down()


@testbed_app.command("status")
def show_testbed(as_json: JsonOption = False) -> None:
    """Say which components are up. Exit code 3 when something that was started is not."""
    from streamproof.run import lock

    states = embedded.status()
    if as_json:
        print(json.dumps(states))
    elif not states:
        say("no testbed is up: `streamproof testbed up`")
    for name, state in states.items() if not as_json else ():
        say(f"{name}: {state}")
    holder = lock.holder()
    if holder is not None and not as_json:
        say(f"held by run {holder.run}{' (stale: `streamproof heal`)' if lock.is_stale(holder) else ''}")
    if any(state != "up" for state in states.values()):
        raise typer.Exit(3)
