import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.SparkConf;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.api.java.JavaInputDStream;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.kafka010.CanCommitOffsets;
import org.apache.spark.streaming.kafka010.ConsumerStrategies;
import org.apache.spark.streaming.kafka010.ConsumerStrategy;
import org.apache.spark.streaming.kafka010.HasOffsetRanges;
import org.apache.spark.streaming.kafka010.KafkaUtils;
import org.apache.spark.streaming.kafka010.LocationStrategies;
import org.apache.spark.streaming.kafka010.OffsetRange;
import org.apache.spark.streaming.scheduler.BatchInfo;
import org.apache.spark.streaming.scheduler.StreamingListener;
import org.apache.spark.streaming.scheduler.StreamingListenerBatchCompleted;

/**
 * From topic to topic by a direct stream, which commits its offsets after the output. TOPICS=assign names the partitions that there are at
 * the beginning; RESET says where one without a committed offset begins that is added later. The output takes SINK_MS for each record. What Spark reports of each batch is
 * kept in batches.jsonl of the state folder; times are in ms.
 */
public final class Direct {
    private static final int PARTITIONS = 4; // of the input as a run makes it: what `assign` knows of
    private static final long BATCH_MS = 500;

    public static void main(String[] arguments) throws InterruptedException {
        SparkConf conf = new SparkConf().setIfMissing("spark.streaming.kafka.maxRatePerPartition", "400");
        JavaStreamingContext streaming = new JavaStreamingContext(conf, Durations.milliseconds(BATCH_MS));
        JavaInputDStream<ConsumerRecord<byte[], byte[]>> stream =
                KafkaUtils.createDirectStream(streaming, LocationStrategies.PreferConsistent(), read());
        stream.foreachRDD(batch -> {
            OffsetRange[] ranges = ((HasOffsetRanges) batch.rdd()).offsetRanges();
            batch.foreachPartition(Direct::write);
            ((CanCommitOffsets) stream.inputDStream()).commitAsync(ranges);
        });
        streaming.addStreamingListener(new Batches());
        streaming.start();
        streaming.awaitTermination();
    }

    private static ConsumerStrategy<byte[], byte[]> read() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        settings.put("group.id", System.getenv("STREAMPROOF_GROUP"));
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", System.getenv().getOrDefault("RESET", "earliest"));
        settings.put("session.timeout.ms", 6000); // a start waits as long for the member that was killed
        settings.put("heartbeat.interval.ms", 1500);
        settings.put("metadata.max.age.ms", 1000); // how soon a partition that is added is seen
        String topic = System.getenv("STREAMPROOF_INPUT_TOPIC");
        Map<TopicPartition, Long> beginnings = new HashMap<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            beginnings.put(new TopicPartition(topic, partition), 0L);
        }
        if ("assign".equals(System.getenv("TOPICS"))) {
            return ConsumerStrategies.Assign(beginnings.keySet(), settings);
        }
        boolean first = "1".equals(System.getenv("STREAMPROOF_START")); // later ones go on from what is committed
        return ConsumerStrategies.Subscribe(List.of(topic), settings, first ? beginnings : Map.of());
    }

    private static final class Batches implements StreamingListener {
        private static final Path FILE = Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "batches.jsonl");

        @Override
        public void onBatchCompleted(StreamingListenerBatchCompleted completed) {
            BatchInfo batch = completed.batchInfo();
            String line = String.format(
                    "{\"start\": %s, \"records\": %d, \"submitted_at\": %d, \"ended_at\": %s, \"processing\": %s, \"scheduling\": %s}%n",
                    System.getenv("STREAMPROOF_START"),
                    batch.numRecords(),
                    batch.submissionTime(),
                    batch.processingEndTime().get(),
                    batch.processingDelay().get(),
                    batch.schedulingDelay().get());
            try {
                Files.writeString(FILE, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
    }

    private static void write(Iterator<ConsumerRecord<byte[], byte[]>> records) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        settings.put("acks", "all");
        String topic = System.getenv("STREAMPROOF_OUTPUT_TOPIC");
        long slow = Long.parseLong(System.getenv().getOrDefault("SINK_MS", "0"));
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (records.hasNext()) {
                ConsumerRecord<byte[], byte[]> record = records.next();
                producer.send(new ProducerRecord<>(topic, null, record.key(), record.value(), record.headers()));
                Thread.sleep(slow);
            }
            producer.flush();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException("the task was ended", interrupted);
        }
    }
}
