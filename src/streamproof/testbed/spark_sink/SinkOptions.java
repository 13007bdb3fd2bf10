package streamproof.kafka;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** What a user sets on the writer. Names are not case-sensitive. */
final class SinkOptions implements Serializable {
    /** The broker's default maximum. A decision that is carried out later than this is lost. */
    private static final String TRANSACTION_TIMEOUT_MS = "900000";

    private final TreeMap<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

    SinkOptions(Map<String, String> given) {
        all.putAll(given);
        require("kafka.bootstrap.servers");
        if (all.get("decisions") == null && all.get("checkpointLocation") == null) {
            throw new IllegalArgumentException(
                    "streamproof-kafka: set the option checkpointLocation, or decisions: the folder that keeps what was decided to be committed");
        }
    }

    private String require(String name) {
        String value = all.get(name);
        if (value == null) {
            throw new IllegalArgumentException("streamproof-kafka: set the option " + name);
        }
        return value;
    }

    /** The topic of every row; null where each row names its own. */
    String topic() {
        return all.get("topic");
    }

    /** What every transactional id of the query begins with; no other query may use it. */
    String prefix(String queryId) {
        return all.getOrDefault("transactionalIdPrefix", queryId);
    }

    String decisions() {
        String folder = all.get("decisions");
        return folder != null ? folder : all.get("checkpointLocation") + "/decisions";
    }

    /** The header that says which start, batch and attempt wrote a record; null for none. */
    String originHeader() {
        return all.get("originHeader");
    }

    String originStart() {
        return all.getOrDefault("originStart", "0");
    }

    Map<String, Object> producer(String transactionalId) {
        Map<String, Object> config = new HashMap<>();
        config.put("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS);
        // The coordinator may still write the markers of the last transaction when the next one begins.
        config.put("retry.backoff.ms", "10");
        config.putAll(client());
        config.put("transactional.id", transactionalId);
        config.put("client.id", transactionalId);
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return config;
    }

    /** Options that begin with {@code kafka.}, as Kafka's clients take them. */
    Map<String, Object> client() {
        Map<String, Object> config = new HashMap<>();
        for (Map.Entry<String, String> option : all.entrySet()) {
            String name = option.getKey().toLowerCase(Locale.ROOT);
            if (name.startsWith("kafka.")) {
                config.put(name.substring("kafka.".length()), option.getValue());
            }
        }
        return config;
    }
}
