import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutConfig;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutOpaque;
import org.apache.storm.trident.Stream;
import org.apache.storm.trident.TridentTopology;
import org.apache.storm.trident.operation.BaseFunction;
import org.apache.storm.trident.operation.TridentCollector;
import org.apache.storm.trident.operation.builtin.Count;
import org.apache.storm.trident.state.BaseStateUpdater;
import org.apache.storm.trident.state.OpaqueValue;
import org.apache.storm.trident.state.State;
import org.apache.storm.trident.state.map.IBackingMap;
import org.apache.storm.trident.state.map.NonTransactionalMap;
import org.apache.storm.trident.state.map.OpaqueMap;
import org.apache.storm.trident.tuple.TridentTuple;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * How many flights each carrier has had, by Trident: an opaque spout, and a state in PostgreSQL that is opaque, or not transactional. There is
 * no such state in Storm, and none can be written in another language.
 */
public final class Carriers {
    private static final long BETWEEN_MS = 200; // after the state is written, before Trident knows: a crash may come then

    private final boolean opaque;

    public Carriers(boolean opaque) {
        this.opaque = opaque;
    }

    /** Called by Flux. */
    public StormTopology getTopology(Map<String, Object> conf) {
        String topic = System.getenv("STREAMPROOF_INPUT_TOPIC");
        KafkaTridentSpoutConfig<String, String> read = KafkaTridentSpoutConfig.builder(System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"), topic)
                .setProp("group.id", System.getenv("STREAMPROOF_GROUP") + "-trident")
                .setProp("max.poll.records", 150)
                .build();
        TridentTopology topology = new TridentTopology();
        Stream flights = topology.newStream("flights", new KafkaTridentSpoutOpaque<>(read));
        boolean exact = opaque;
        flights.each(new Fields("value"), new Carrier(), new Fields("carrier"))
                .groupBy(new Fields("carrier"))
                .persistentAggregate(
                        (settings, metrics, part, parts) ->
                                exact ? OpaqueMap.build(new Exact()) : NonTransactionalMap.build(new Plain()),
                        new Count(),
                        new Fields("flights"));
        flights.partitionPersist((settings, metrics, part, parts) -> new Position(), new Fields("partition", "offset"), new Passed());
        return topology.build();
    }

    private static final class Carrier extends BaseFunction {
        private static final ObjectMapper JSON = new ObjectMapper();

        @Override
        public void execute(TridentTuple tuple, TridentCollector collector) {
            try {
                collector.emit(new Values(JSON.readTree(tuple.getString(0)).get("carrier").asText()));
            } catch (IOException failed) {
                throw new IllegalArgumentException(tuple.getString(0), failed);
            }
        }
    }

    /** A table of totals; what else a row holds is the subclass's. */
    private abstract static class Table<T> implements IBackingMap<T> {
        private final Connection connection;

        Table() {
            try {
                connection = DriverManager.getConnection(System.getenv("STREAMPROOF_JDBC_URL"));
                connection.setAutoCommit(false);
            } catch (SQLException failed) {
                throw new IllegalStateException(failed);
            }
        }

        abstract T read(ResultSet row) throws SQLException;

        abstract void write(PreparedStatement row, T value) throws SQLException;

        @Override
        public List<T> multiGet(List<List<Object>> keys) {
            List<T> found = new ArrayList<>();
            try (PreparedStatement query = connection.prepareStatement("SELECT flights, txid, previous FROM totals WHERE carrier = ?")) {
                for (List<Object> key : keys) {
                    query.setString(1, (String) key.get(0));
                    try (ResultSet row = query.executeQuery()) {
                        found.add(row.next() ? read(row) : null);
                    }
                }
                connection.commit();
                return found;
            } catch (SQLException failed) {
                throw new IllegalStateException(failed);
            }
        }

        @Override
        public void multiPut(List<List<Object>> keys, List<T> values) {
            String upsert = "INSERT INTO totals (carrier, flights, txid, previous) VALUES (?, ?, ?, ?) ON CONFLICT (carrier)"
                    + " DO UPDATE SET flights = excluded.flights, txid = excluded.txid, previous = excluded.previous";
            try (PreparedStatement rows = connection.prepareStatement(upsert)) {
                for (int number = 0; number < keys.size(); number++) {
                    rows.setString(1, (String) keys.get(number).get(0));
                    write(rows, values.get(number));
                    rows.addBatch();
                }
                rows.executeBatch();
                connection.commit();
                Thread.sleep(BETWEEN_MS);
            } catch (SQLException failed) {
                throw new IllegalStateException(failed);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @SuppressWarnings("rawtypes")
    private static final class Exact extends Table<OpaqueValue> {
        @Override
        OpaqueValue read(ResultSet row) throws SQLException {
            long previous = row.getLong("previous");
            return new OpaqueValue<>(row.getLong("txid"), row.getLong("flights"), row.wasNull() ? null : previous);
        }

        @Override
        void write(PreparedStatement row, OpaqueValue value) throws SQLException {
            row.setLong(2, (Long) value.getCurr());
            row.setLong(3, value.getCurrTxid());
            row.setObject(4, value.getPrev());
        }
    }

    private static final class Plain extends Table<Object> {
        @Override
        Object read(ResultSet row) throws SQLException {
            return row.getLong("flights");
        }

        @Override
        void write(PreparedStatement row, Object value) throws SQLException {
            row.setLong(2, (Long) value);
            row.setNull(3, java.sql.Types.BIGINT);
            row.setNull(4, java.sql.Types.BIGINT);
        }
    }

    /** How far it is, for others to look at: Trident itself goes on from what it keeps in ZooKeeper. */
    private static final class Position implements State {
        private final Map<TopicPartition, OffsetAndMetadata> passed = new HashMap<>();
        private final KafkaConsumer<byte[], byte[]> group = new KafkaConsumer<>(
                Map.of("bootstrap.servers", System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"), "group.id", System.getenv("STREAMPROOF_GROUP")),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());

        @Override
        public void beginCommit(Long transaction) {}

        @Override
        public void commit(Long transaction) {
            group.commitSync(passed);
        }
    }

    private static final class Passed extends BaseStateUpdater<Position> implements Serializable {
        @Override
        public void updateState(Position state, List<TridentTuple> tuples, TridentCollector collector) {
            String topic = System.getenv("STREAMPROOF_INPUT_TOPIC");
            for (TridentTuple tuple : tuples) {
                TopicPartition partition = new TopicPartition(topic, tuple.getIntegerByField("partition"));
                state.passed.put(partition, new OffsetAndMetadata(tuple.getLongByField("offset") + 1));
            }
        }
    }
}
