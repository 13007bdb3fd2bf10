package streamproof.kafka;

import java.io.Serializable;
import java.util.Arrays;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Where a row keeps what a record is made of: the columns of Spark's own Kafka sink. A column that is absent has the index -1. */
record Columns(String fixedTopic, int topic, int key, int value, int headers, int partition, boolean textKey, boolean textValue)
        implements Serializable {

    static Columns of(StructType schema, String fixedTopic) {
        int topic = index(schema, "topic", "string");
        int key = index(schema, "key", "binary", "string");
        int value = index(schema, "value", "binary", "string");
        int headers = index(schema, "headers", "array<struct<key:string,value:binary>>");
        int partition = index(schema, "partition", "int");
        if (value < 0) {
            throw new IllegalArgumentException("streamproof-kafka: expected a column value, found " + schema.catalogString());
        }
        if (fixedTopic == null && topic < 0) {
            throw new IllegalArgumentException("streamproof-kafka: set the option topic, or add a column topic");
        }
        return new Columns(fixedTopic, topic, key, value, headers, partition, text(schema, key), text(schema, value));
    }

    private static int index(StructType schema, String name, String... types) {
        int index = Arrays.asList(schema.fieldNames()).indexOf(name);
        if (index >= 0 && !Arrays.asList(types).contains(schema.apply(index).dataType().catalogString())) {
            throw new IllegalArgumentException("streamproof-kafka: column " + name + ": expected " + String.join(" or ", types) + ", found "
                    + schema.apply(index).dataType().catalogString());
        }
        return index;
    }

    private static boolean text(StructType schema, int index) {
        return index >= 0 && schema.apply(index).dataType().equals(DataTypes.StringType);
    }

    ProducerRecord<byte[], byte[]> record(InternalRow row, Header origin) {
        String to = fixedTopic != null ? fixedTopic : row.isNullAt(topic) ? null : row.getUTF8String(topic).toString();
        if (to == null) {
            throw new IllegalArgumentException("streamproof-kafka: a row has no topic, and the option topic is not set");
        }
        Integer number = partition < 0 || row.isNullAt(partition) ? null : row.getInt(partition);
        return new ProducerRecord<>(to, number, null, bytes(row, key, textKey), bytes(row, value, textValue), headers(row, origin));
    }

    private static byte[] bytes(InternalRow row, int index, boolean text) {
        if (index < 0 || row.isNullAt(index)) {
            return null;
        }
        return text ? row.getUTF8String(index).getBytes() : row.getBinary(index);
    }

    private Iterable<Header> headers(InternalRow row, Header origin) {
        if (origin == null && (headers < 0 || row.isNullAt(headers))) {
            return null;
        }
        RecordHeaders all = new RecordHeaders();
        if (headers >= 0 && !row.isNullAt(headers)) {
            ArrayData array = row.getArray(headers);
            for (int i = 0; i < array.numElements(); i++) {
                InternalRow header = array.getStruct(i, 2);
                all.add(new RecordHeader(header.getUTF8String(0).toString(), header.isNullAt(1) ? null : header.getBinary(1)));
            }
        }
        return origin == null ? all : all.add(origin);
    }
}
