package main

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func frameOfRequest(r kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("the-job")).AppendRequest(nil, r, 7)
}

func TestEveryVersionOfARequestIsRead(t *testing.T) {
	for _, kind := range []kmsg.Request{&kmsg.ProduceRequest{}, &kmsg.EndTxnRequest{}, &kmsg.TxnOffsetCommitRequest{}, &kmsg.OffsetCommitRequest{}} {
		for version := range kind.MaxVersion() + 1 {
			r := kmsg.RequestForKey(kind.Key())
			r.SetVersion(version)
			if produce, is := r.(*kmsg.ProduceRequest); is {
				produce.Acks = -1
			}
			frame := frameOfRequest(r)[4:]
			h := readHead(frame)
			if h.key != kind.Key() || h.version != version || h.correlation != 7 || h.clientID != "the-job" || !h.answered() {
				t.Errorf("%s v%d: read as %+v", h.name(), version, h)
			}
			if parsed, problem := parsedRequest(h, frame); parsed == nil {
				t.Errorf("%s v%d: %s", h.name(), version, problem)
			}
		}
	}
}

func TestAProduceWithoutAnAnswerIsKnown(t *testing.T) {
	for version := int16(3); version <= (&kmsg.ProduceRequest{}).MaxVersion(); version++ {
		id := "a-transaction"
		h := readHead(frameOfRequest(&kmsg.ProduceRequest{Version: version, TransactionID: &id, Acks: 0})[4:])
		if h.answered() {
			t.Errorf("v%d: expected no answer, read %+v", version, h)
		}
	}
}

func TestAMadeAnswerNamesWhatWasAskedFor(t *testing.T) {
	for version := range (&kmsg.TxnOffsetCommitRequest{}).MaxVersion() + 1 {
		r := kmsg.NewPtrTxnOffsetCommitRequest()
		r.Version, r.TransactionalID = version, "id"
		r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 3}}}}
		frame := frameOfRequest(r)
		made, m := madeAnswer(&exchange{head: readHead(frame[4:])}, frame, 14)
		if made == nil || m.Errors[0] != 14 || int(binary.BigEndian.Uint32(made)) != len(made)-4 {
			t.Fatalf("v%d: made %v, %+v", version, made, m)
		}
		parsed, problem := parsedAnswer(readHead(frame[4:]), made[4:])
		if parsed == nil {
			t.Fatalf("v%d: %s", version, problem)
		}
		partition := parsed.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0]
		if partition.Partition != 3 || partition.ErrorCode != 14 {
			t.Errorf("v%d: came %+v", version, partition)
		}
	}
}

func TestWhatIsCutOffIsNotRead(t *testing.T) {
	frame := frameOfRequest(&kmsg.EndTxnRequest{Version: 3, TransactionalID: "id"})[4:]
	for size := smallestRequest; size < len(frame); size++ {
		if parsed, _ := parsedRequest(readHead(frame[:size]), frame[:size]); parsed != nil {
			t.Errorf("%d of %d bytes were read as %+v", size, len(frame), parsed)
		}
	}
}
