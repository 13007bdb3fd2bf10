import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.SparkConf;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.receiver.Receiver;
import scala.Tuple2;

/**
 * From topic to topic by a receiver, which stores what it reads in Spark before it is processed. It commits its position when Spark has
 * stored it, which with a write-ahead log survives a crash; with POSITION=first before that, and then the log is to be off as well.
 */
public final class Received {
    private static final long BATCH_MS = 500;
    private static final long BETWEEN_MS = 200; // between the two steps: a crash may come then

    public static void main(String[] arguments) throws InterruptedException {
        String checkpoint = System.getenv("STREAMPROOF_CHECKPOINT");
        JavaStreamingContext streaming = JavaStreamingContext.getOrCreate(checkpoint, () -> {
            JavaStreamingContext made = new JavaStreamingContext(new SparkConf(), Durations.milliseconds(BATCH_MS));
            made.checkpoint(checkpoint);
            made.receiverStream(new FromKafka()).foreachRDD(batch -> batch.foreachPartition(Received::write));
            return made;
        });
        streaming.start();
        streaming.awaitTermination();
    }

    private static final class FromKafka extends Receiver<Tuple2<byte[], byte[]>> {
        FromKafka() {
            super(StorageLevel.MEMORY_AND_DISK_SER());
        }

        @Override
        public void onStart() {
            new Thread(this::receive, "from Kafka").start();
        }

        @Override
        public void onStop() {} // the thread asks isStopped

        private void receive() {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
            settings.put("group.id", System.getenv("STREAMPROOF_GROUP"));
            settings.put("enable.auto.commit", false);
            settings.put("auto.offset.reset", "earliest");
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 1500);
            settings.put("max.poll.records", 300);
            boolean positionFirst = "first".equals(System.getenv("POSITION"));
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(System.getenv("STREAMPROOF_INPUT_TOPIC")));
                while (!isStopped()) {
                    List<Tuple2<byte[], byte[]>> records = new ArrayList<>();
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        records.add(new Tuple2<>(record.key(), record.value()));
                    }
                    if (records.isEmpty()) {
                        continue;
                    }
                    if (positionFirst) {
                        consumer.commitSync();
                    } else {
                        store(records.iterator()); // returns when it is stored, and logged
                    }
                    Thread.sleep(BETWEEN_MS);
                    if (positionFirst) {
                        store(records.iterator());
                    } else {
                        consumer.commitSync();
                    }
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            } catch (RuntimeException failed) {
                restart("it goes on from its position", failed);
            }
        }
    }

    private static void write(Iterator<Tuple2<byte[], byte[]>> records) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        settings.put("acks", "all");
        String topic = System.getenv("STREAMPROOF_OUTPUT_TOPIC");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (records.hasNext()) {
                Tuple2<byte[], byte[]> record = records.next();
                producer.send(new ProducerRecord<>(topic, record._1(), record._2()));
            }
            producer.flush();
        }
    }
}
