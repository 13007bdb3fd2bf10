package main

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce     = 0
	keyMetadata    = 3
	keyApiVersions = 18
	keyInitID      = 22
	// Of a record batch (v2), which is all that a Kafka 4 takes.
	producerIDAt, producerEpochAt, recordsAt, batchHead = 43, 51, 57, 61
)

// head is what a request begins with.
type head struct {
	key, version int16
	correlation  int32
	clientID     string
	acks         int16 // of Produce; 1 for others: each has an answer
	body         int   // where the rest begins, 0 when it cannot be read
}

// name is the message's, as Kafka's documentation writes it.
func (h head) name() string {
	return strings.Replace(kmsg.NameForKey(h.key), "InitProducerID", "InitProducerId", 1)
}

func (h head) answered() bool { return h.acks != 0 }

// messageNames are the names that a rule may have.
var messageNames = sync.OnceValue(func() []string {
	names := slices.Clone(statementKinds)
	for key := range int16(kmsg.MaxKey + 1) {
		if kmsg.RequestForKey(key) != nil {
			names = append(names, head{key: key}.name())
		}
	}
	return names
})

// readHead reads the beginning of a request; of one that is cut off, or of an api that is not known, what can be read.
func readHead(frame []byte) head {
	h := head{key: int16(binary.BigEndian.Uint16(frame)), version: int16(binary.BigEndian.Uint16(frame[2:]))}
	h.correlation, h.acks = int32(binary.BigEndian.Uint32(frame[4:])), 1
	r := reader{data: frame, at: smallestRequest}
	h.clientID = r.text()
	known := kmsg.RequestForKey(h.key)
	if known == nil || h.version > known.MaxVersion() || r.short {
		return h
	}
	known.SetVersion(h.version)
	if known.IsFlexible() {
		r.tags()
	}
	body := r.at
	if h.key == keyProduce {
		if h.version >= 9 {
			r.compactText()
		} else if h.version >= 3 {
			r.text()
		}
		if acks := r.number16(); !r.short {
			h.acks = acks
		}
	}
	if !r.short {
		h.body = body
	}
	return h
}

// reader reads the few fields that come before those that a schema describes.
type reader struct {
	data  []byte
	at    int
	short bool
}

func (r *reader) take(count int) []byte {
	if count < 0 || r.at+count > len(r.data) {
		r.short = true
		return nil
	}
	r.at += count
	return r.data[r.at-count : r.at]
}

func (r *reader) number16() int16 {
	bytes := r.take(2)
	if bytes == nil {
		return 0
	}
	return int16(binary.BigEndian.Uint16(bytes))
}

func (r *reader) text() string {
	length := r.number16()
	if length < 0 { // null
		return ""
	}
	return string(r.take(int(length)))
}

func (r *reader) varint() int {
	value, read := binary.Uvarint(r.data[min(r.at, len(r.data)):])
	if read <= 0 {
		r.short = true
		return 0
	}
	r.at += read
	return int(value)
}

func (r *reader) compactText() string {
	return string(r.take(max(r.varint()-1, 0)))
}

func (r *reader) tags() {
	for count := r.varint(); count > 0 && !r.short; count-- {
		r.varint()
		r.take(r.varint())
	}
}

func parsedRequest(h head, frame []byte) (kmsg.Request, string) {
	parsed := kmsg.RequestForKey(h.key)
	if parsed == nil || h.body == 0 {
		return nil, "its api or version is not known here"
	}
	parsed.SetVersion(h.version)
	if err := parsed.ReadFrom(frame[h.body:]); err != nil {
		return nil, "it does not fit its schema: " + err.Error()
	}
	return parsed, ""
}

// describeRequest adds to m what the request says.
func describeRequest(m *message, h head, frame []byte, topics *hub) {
	parsed, problem := parsedRequest(h, frame)
	if parsed == nil {
		m.Unread = problem
		return
	}
	producer := func(id int64, epoch int16) { m.ProducerID, m.ProducerEpoch = pointer(id), pointer(epoch) }
	switch r := parsed.(type) {
	case *kmsg.ProduceRequest:
		if r.TransactionID != nil {
			m.TransactionalID = *r.TransactionID
		}
		m.Acks = pointer(r.Acks)
		describeProduce(m, r, topics)
	case *kmsg.TxnOffsetCommitRequest:
		m.TransactionalID, m.Group = r.TransactionalID, r.Group
		producer(r.ProducerID, r.ProducerEpoch)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				m.Places = append(m.Places, place{Topic: t.Topic, Partition: p.Partition, Offset: pointer(p.Offset)})
			}
		}
	case *kmsg.OffsetCommitRequest:
		m.Group = r.Group
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				m.Places = append(m.Places, place{Topic: topics.topic(t.Topic, t.TopicID), Partition: p.Partition, Offset: pointer(p.Offset)})
			}
		}
	case *kmsg.EndTxnRequest:
		m.TransactionalID, m.Commit = r.TransactionalID, pointer(r.Commit)
		producer(r.ProducerID, r.ProducerEpoch)
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil {
			m.TransactionalID = *r.TransactionalID
		}
		producer(r.ProducerID, r.ProducerEpoch)
	case *kmsg.AddPartitionsToTxnRequest:
		describeAddPartitions(m, r)
	case *kmsg.AddOffsetsToTxnRequest:
		m.TransactionalID, m.Group = r.TransactionalID, r.Group
		producer(r.ProducerID, r.ProducerEpoch)
	case *kmsg.JoinGroupRequest:
		m.Group = r.Group
	case *kmsg.SyncGroupRequest:
		m.Group = r.Group
	case *kmsg.LeaveGroupRequest:
		m.Group = r.Group
	case *kmsg.FetchRequest:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				m.Places = append(m.Places, place{Topic: topics.topic(t.Topic, t.TopicID), Partition: p.Partition, Offset: pointer(p.FetchOffset)})
			}
		}
	}
}

func describeProduce(m *message, r *kmsg.ProduceRequest, topics *hub) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			count := 0
			for batch := p.Records; len(batch) >= batchHead; {
				count += int(binary.BigEndian.Uint32(batch[recordsAt:]))
				m.ProducerID = pointer(int64(binary.BigEndian.Uint64(batch[producerIDAt:])))
				m.ProducerEpoch = pointer(int16(binary.BigEndian.Uint16(batch[producerEpochAt:])))
				length := 12 + int(binary.BigEndian.Uint32(batch[8:]))
				if length <= 12 || length > len(batch) {
					break
				}
				batch = batch[length:]
			}
			m.Places = append(m.Places, place{Topic: topics.topic(t.Topic, t.TopicID), Partition: p.Partition, Records: pointer(count)})
		}
	}
}

func describeAddPartitions(m *message, r *kmsg.AddPartitionsToTxnRequest) {
	add := func(topic string, partitions []int32) {
		for _, partition := range partitions {
			m.Places = append(m.Places, place{Topic: topic, Partition: partition})
		}
	}
	m.TransactionalID, m.ProducerID, m.ProducerEpoch = r.TransactionalID, pointer(r.ProducerID), pointer(r.ProducerEpoch)
	for _, t := range r.Topics {
		add(t.Topic, t.Partitions)
	}
	for _, transaction := range r.Transactions {
		m.TransactionalID, m.ProducerID, m.ProducerEpoch = transaction.TransactionalID, pointer(transaction.ProducerID), pointer(transaction.ProducerEpoch)
		for _, t := range transaction.Topics {
			add(t.Topic, t.Partitions)
		}
	}
}

// topic is the name of a topic that newer versions give by its id; the id when no answer of Metadata has named it.
func (h *hub) topic(name string, id [16]byte) string {
	if name != "" || id == [16]byte{} {
		return name
	}
	if known, there := h.topics.Load(id); there {
		return known.(string)
	}
	return hexOf(id[:])
}

func hexOf(bytes []byte) string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 2*len(bytes))
	for _, b := range bytes {
		text = append(text, digits[b>>4], digits[b&15])
	}
	return string(text)
}

// parsedAnswer reads an answer; nil with the reason when that is not possible.
func parsedAnswer(h head, frame []byte) (kmsg.Response, string) {
	asked := kmsg.RequestForKey(h.key)
	if asked == nil || h.version > asked.MaxVersion() {
		return nil, "its api or version is not known here"
	}
	parsed := asked.ResponseKind()
	parsed.SetVersion(h.version)
	r := reader{data: frame, at: 4}
	if parsed.IsFlexible() && h.key != keyApiVersions {
		r.tags()
	}
	if r.short {
		return nil, "it ends within its header"
	}
	if err := parsed.ReadFrom(frame[r.at:]); err != nil {
		return nil, "it does not fit its schema: " + err.Error()
	}
	return parsed, ""
}

// describeAnswer adds to m, which describes the request, what the answer says.
func describeAnswer(m *message, x *exchange, frame []byte, topics *hub) {
	parsed, problem := parsedAnswer(x.head, frame)
	if parsed == nil {
		m.Unread = problem
		return
	}
	m.Errors = errorCodes(parsed)
	switch r := parsed.(type) {
	case *kmsg.ProduceResponse:
		m.Places = nil
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				m.Places = append(m.Places, place{
					Topic: topics.topic(t.Topic, t.TopicID), Partition: p.Partition, Offset: pointer(p.BaseOffset), Error: pointer(p.ErrorCode),
				})
			}
		}
	case *kmsg.InitProducerIDResponse:
		m.ProducerID, m.ProducerEpoch = pointer(r.ProducerID), pointer(r.ProducerEpoch)
	case *kmsg.FetchResponse:
		m.Places = nil
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				m.Places = append(m.Places, place{
					Topic: topics.topic(t.Topic, t.TopicID), Partition: p.Partition, Offset: pointer(p.HighWatermark), Error: pointer(p.ErrorCode),
				})
			}
		}
	case *kmsg.MetadataResponse:
		for _, t := range r.Topics {
			if t.Topic != nil && t.TopicID != [16]byte{} {
				topics.topics.Store(t.TopicID, *t.Topic)
			}
		}
	}
}

// errorCodes is every value of a field ErrorCode, each once, in order. An answer without such a field has none.
func errorCodes(answer kmsg.Response) []int16 {
	codes := []int16{}
	eachErrorCode(reflect.ValueOf(answer), func(code reflect.Value) { codes = append(codes, int16(code.Int())) })
	slices.Sort(codes)
	return slices.Compact(codes)
}

func eachErrorCode(value reflect.Value, visit func(reflect.Value)) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			eachErrorCode(value.Elem(), visit)
		}
	case reflect.Slice:
		for number := range value.Len() {
			if element := value.Index(number); element.Kind() == reflect.Struct || element.Kind() == reflect.Pointer {
				eachErrorCode(element, visit)
			}
		}
	case reflect.Struct:
		for number := range value.NumField() {
			field := value.Field(number)
			if value.Type().Field(number).Name == "ErrorCode" && field.Kind() == reflect.Int16 {
				visit(field)
			} else if value.Type().Field(number).IsExported() {
				eachErrorCode(field, visit)
			}
		}
	}
}

func kafkaCode(text string) int16 {
	code, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		return 0
	}
	return int16(code)
}

// changedAnswer is the broker's answer with every error code replaced, as a frame; nil when it cannot be read.
func changedAnswer(x *exchange, frame []byte, m message, code int16) ([]byte, message) {
	parsed, _ := parsedAnswer(x.head, frame[4:])
	if parsed == nil {
		return nil, m
	}
	eachErrorCode(reflect.ValueOf(parsed), func(field reflect.Value) { field.SetInt(int64(code)) })
	m.Errors = errorCodes(parsed)
	return frameOf(x.head, parsed), m
}

// madeAnswer is an answer to the request with that error code in each place, as a frame; nil when none can be made.
func madeAnswer(x *exchange, frame []byte, code int16) ([]byte, message) {
	m := x.sent
	if frame == nil || !x.head.answered() {
		return nil, m
	}
	parsed, _ := parsedRequest(x.head, frame[4:])
	if parsed == nil {
		return nil, m
	}
	made := parsed.ResponseKind()
	made.SetVersion(x.head.version)
	if defaulted, can := made.(interface{ Default() }); can {
		defaulted.Default()
	}
	mirror(reflect.ValueOf(parsed).Elem(), reflect.ValueOf(made).Elem())
	found := false
	eachErrorCode(reflect.ValueOf(made), func(field reflect.Value) { field.SetInt(int64(code)); found = true })
	if !found {
		return nil, m
	}
	m.Direction, m.Errors = answer, []int16{code}
	return frameOf(x.head, made), m
}

// mirror gives the answer the topics and partitions of the request: fields of the same name and kind are copied, lists element by element.
func mirror(from, to reflect.Value) {
	for number := range to.NumField() {
		name := to.Type().Field(number).Name
		source, target := from.FieldByName(name), to.Field(number)
		if !source.IsValid() || name == "Version" || name == "UnknownTags" || name == "ErrorCode" {
			continue
		}
		switch {
		case target.Kind() == reflect.Slice && source.Kind() == reflect.Slice && target.Type().Elem().Kind() == reflect.Struct:
			target.Set(mirrored(source, target.Type()))
		case target.Type() == source.Type():
			target.Set(source)
		}
	}
}

func mirrored(source reflect.Value, kind reflect.Type) reflect.Value {
	list := reflect.MakeSlice(kind, source.Len(), source.Len())
	for number := range source.Len() {
		element := list.Index(number)
		if defaulted, can := element.Addr().Interface().(interface{ Default() }); can {
			defaulted.Default()
		}
		switch from := source.Index(number); {
		case from.Kind() == reflect.Struct:
			mirror(from, element)
		case element.FieldByName("Partition").IsValid() && from.Kind() == reflect.Int32: // partitions that are given as numbers
			element.FieldByName("Partition").Set(from)
		}
	}
	return list
}

func frameOf(h head, made kmsg.Response) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(h.correlation))
	if made.IsFlexible() && h.key != keyApiVersions {
		frame = append(frame, 0) // no tags
	}
	frame = made.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}
