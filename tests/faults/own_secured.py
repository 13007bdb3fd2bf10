"""A job on a secured Kafka, which takes how it gets in from its environment: records pass on, and offsets are committed behind them."""

import os
import signal

from confluent_kafka import Consumer, Producer

ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    kafka = {
        "bootstrap.servers": os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"],
        "security.protocol": os.environ["STREAMPROOF_SECURITY_PROTOCOL"],
        "ssl.ca.location": os.environ["STREAMPROOF_SSL_CA"],
        "sasl.mechanism": os.environ["STREAMPROOF_SASL_MECHANISM"],
        "sasl.username": os.environ["STREAMPROOF_SASL_USERNAME"],
        "sasl.password": os.environ["OWN_PASSWORD"],
    }
    consumer = Consumer(
        {**kafka, "group.id": os.environ["STREAMPROOF_GROUP"], "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    producer = Producer(kafka)
    consumer.subscribe([os.environ["STREAMPROOF_INPUT_TOPIC"]])
    while not ended:
        messages = [message for message in consumer.consume(200, timeout=0.1) if message.error() is None]
        for message in messages:
            producer.produce(os.environ["STREAMPROOF_OUTPUT_TOPIC"], key=message.key(), value=message.value())
        if messages and producer.flush(60) == 0:
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
