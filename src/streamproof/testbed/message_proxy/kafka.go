package main

import (
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// A frame of Kafka's protocol is its length in four bytes, and that many bytes: of a request the api, its version, the correlation id and
// the client id come first, of an answer the correlation id. A broker answers the requests of a connection in their order.

const (
	smallestRequest = 8 // api, version, correlation id
	mostHead        = 4096
)

// kafka reads a connection between a client and a broker.
type kafka struct {
	*connection
	mutex     sync.Mutex
	pending   []*exchange
	answering bool // an answer of the broker is on its way to the client: one that is made here comes after it
}

// exchange is a request whose answer is to come.
type exchange struct {
	head   head
	sent   message
	traced bool
	wanted bool // a rule names it
	strike *strike
	made   []byte // an answer that is made here; the broker has not got the request
}

func newKafka(c *connection) *kafka { return &kafka{connection: c} }

func (k *kafka) requests() error {
	for {
		if err := flushIfIdle(k.toServer, k.fromClient); err != nil {
			return err
		}
		size, err := k.size(k.fromClient)
		if err != nil {
			return err
		}
		if k.cut.Load() {
			_, err := io.Copy(io.Discard, k.fromClient)
			return err
		}
		if size < smallestRequest { // TLS, or no Kafka at all
			return k.opaque()
		}
		if err := k.request(size); err != nil {
			return err
		}
	}
}

// size is the length of the frame that comes next; the four bytes stay where they are.
func (k *kafka) size(from io.Reader) (int, error) {
	reader, _ := from.(interface{ Peek(int) ([]byte, error) })
	first, err := reader.Peek(4)
	if err != nil {
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(first))
	if size > 1<<30 { // the first bytes of a TLS handshake, 0x16 0x03, are such a number
		return 0, nil
	}
	return int(size), nil
}

// opaque passes on everything that comes: what cannot be read is not broken.
func (k *kafka) opaque() error {
	m := k.message(request, "unreadable")
	m.Unread = "no frame of Kafka's protocol: is the connection encrypted?"
	k.hub.trace.write(m.stamped())
	k.push(&exchange{head: head{key: -1}})
	if err := k.toServer.Flush(); err != nil {
		return err
	}
	_, err := io.Copy(k.server, k.fromClient)
	return err
}

func (k *kafka) request(size int) error {
	peeked, err := k.fromClient.Peek(4 + min(size, mostHead))
	if err != nil {
		return err
	}
	h := readHead(peeked[4:])
	name := h.name()
	traced := k.hub.trace.wants(name)
	number := k.requestsSeen()
	wanted := k.hub.wants(name)
	if !traced && !wanted {
		if h.answered() {
			k.push(&exchange{head: h})
		}
		return passOn(k.toServer, k.fromClient, 4+size)
	}
	m := k.message(request, name)
	m.Number, m.SizeBytes, m.Version, m.Correlation, m.ClientID = number, size, pointer(h.version), pointer(h.correlation), h.clientID
	var frame []byte
	if size <= mostRead {
		frame = make([]byte, 4+size)
		if _, err := io.ReadFull(k.fromClient, frame); err != nil {
			return err
		}
		describeRequest(&m, h, frame[4:], k.hub)
	} else {
		m.Unread = "longer than a message link reads"
	}
	m = m.stamped()
	x := &exchange{head: h, sent: m, traced: traced, wanted: wanted}
	if traced {
		k.hub.trace.write(m)
	}
	x.strike = k.hub.match(m)
	if x.strike != nil {
		return k.struck(x, frame, 4+size)
	}
	return k.forward(x, frame, 4+size)
}

func (k *kafka) requestsSeen() int64 { return k.counted.Add(1) }

// forward sends the request to the broker; what is not in frame is still to be read.
func (k *kafka) forward(x *exchange, frame []byte, size int) error {
	if x.head.answered() {
		k.push(x)
	}
	if frame == nil {
		return passOn(k.toServer, k.fromClient, size)
	}
	_, err := k.toServer.Write(frame)
	return err
}

// struck does what the rule says to a request.
func (k *kafka) struck(x *exchange, frame []byte, size int) error {
	if err := k.toServer.Flush(); err != nil {
		return err
	}
	r := x.strike.rule
	switch {
	case r.Action == hold && r.Side == request:
		if !k.hub.hold(x.strike, request, x.sent) {
			k.cutClient()
			return errEnded
		}
	case r.Action == dropRequest:
		k.hub.note(dropped, x.strike, x.sent, r.How)
		if r.How == "cut" {
			k.cutClient()
			return errEnded
		}
		_, err := io.Copy(io.Discard, k.fromClient)
		return err
	case r.Action == delayRequest:
		time.Sleep(time.Duration(r.DelayMs) * time.Millisecond)
		k.hub.note(delayed, x.strike, x.sent, request)
	case r.Action == lateRequest:
		return k.late(x, frame, size)
	case r.Action == errorAnswer && !r.Forward:
		return k.answerHere(x, frame, size)
	}
	if err := k.forward(x, frame, size); err != nil {
		k.hub.note(failed, x.strike, x.sent, err.Error())
		return err
	}
	return nil
}

// late cuts the client at once and delivers its request afterwards, over the connection to the broker that was kept.
func (k *kafka) late(x *exchange, frame []byte, size int) error {
	if frame == nil {
		frame = make([]byte, size)
		if _, err := io.ReadFull(k.fromClient, frame); err != nil {
			return err
		}
	}
	k.kept.Store(true)
	k.hangUp()
	if !k.hub.waitLate(x.strike) {
		_ = k.server.Close()
		return errEnded
	}
	k.push(x)
	k.hub.note(late, x.strike, x.sent, "")
	if _, err := k.toServer.Write(frame); err != nil {
		return err
	}
	if err := k.toServer.Flush(); err != nil {
		k.hub.note(failed, x.strike, x.sent, err.Error())
		return err
	}
	return errEnded
}

// answerHere gives the client an error for a request that the broker never gets.
func (k *kafka) answerHere(x *exchange, frame []byte, size int) error {
	if frame == nil {
		if err := passOnNowhere(k.fromClient, size); err != nil {
			return err
		}
	}
	made, m := madeAnswer(x, frame, kafkaCode(x.strike.rule.Code))
	if made == nil { // acks=0, or an api without a schema
		k.hub.note(failed, x.strike, x.sent, "no answer can be made for it")
		k.cutClient()
		return errEnded
	}
	x.made = made
	k.push(x)
	k.hub.note(replaced, x.strike, m, "not forwarded")
	return k.sendMade()
}

func (k *kafka) push(x *exchange) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.pending = append(k.pending, x)
}

// pop is the exchange that an answer belongs to. What is before it has no answer and gets none; nil when there is no such request.
func (k *kafka) pop(correlation int32) *exchange {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for place, x := range k.pending {
		if x.head.key >= 0 && x.made == nil && x.head.correlation == correlation {
			k.pending, k.answering = k.pending[place+1:], true
			return x
		}
	}
	return nil
}

// sendMade writes the answers made here whose turn it is.
func (k *kafka) sendMade() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	for {
		k.mutex.Lock()
		if k.answering || len(k.pending) == 0 || k.pending[0].made == nil {
			k.mutex.Unlock()
			return k.toClient.Flush()
		}
		made := k.pending[0].made
		k.pending = k.pending[1:]
		k.mutex.Unlock()
		if _, err := k.toClient.Write(made); err != nil {
			return err
		}
	}
}

func (k *kafka) answers() error {
	for {
		first, err := k.fromServer.Peek(8)
		if err != nil {
			return err
		}
		size, correlation := int(binary.BigEndian.Uint32(first)), int32(binary.BigEndian.Uint32(first[4:]))
		x := k.pop(correlation)
		if x == nil && k.encrypted() {
			k.writing.Lock()
			defer k.writing.Unlock()
			_ = k.toClient.Flush()
			_, err := io.Copy(k.client, k.fromServer)
			return err
		}
		if err := k.answer(x, 4+size); err != nil {
			return err
		}
	}
}

func (k *kafka) encrypted() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return len(k.pending) > 0 && k.pending[0].head.key < 0
}

func (k *kafka) answer(x *exchange, size int) error {
	if x == nil || size > mostRead || (x.strike == nil && !x.traced && !x.wanted && x.head.key != keyMetadata) {
		if x != nil && x.strike != nil {
			k.hub.note(failed, x.strike, x.sent, "the answer is longer than a message link reads: it was passed on")
		}
		return k.passAnswer(size)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(k.fromServer, frame); err != nil {
		return err
	}
	m := x.sent
	m.Direction, m.SizeBytes = answer, size-4
	describeAnswer(&m, x, frame[4:], k.hub)
	m = m.stamped()
	if x.traced {
		k.hub.trace.write(m)
	}
	k.hub.answeredNow(m)
	if x.strike != nil {
		goesOn, err := k.answerStruck(x, frame, m)
		if !goesOn || err != nil {
			return err
		}
	}
	if k.kept.Load() {
		return nil
	}
	k.writing.Lock()
	_, err := k.toClient.Write(frame)
	if err == nil {
		err = flushIfIdle(k.toClient, k.fromServer)
	}
	k.writing.Unlock()
	if err != nil {
		return err
	}
	return k.sendIfMade()
}

// answerStruck does what the rule says to an answer. It goes on to the client unless goesOn is false.
func (k *kafka) answerStruck(x *exchange, frame []byte, m message) (goesOn bool, err error) {
	r := x.strike.rule
	k.hub.note(answered, x.strike, m, "")
	switch {
	case r.Action == loseAnswer:
		k.hub.note(lost, x.strike, m, "")
		k.cutClient()
		return false, errEnded
	case r.Action == lateRequest:
		_ = k.server.Close()
		return false, errEnded
	case r.Action == hold && r.Side == answer:
		if err := k.flushClient(); err != nil {
			return false, err
		}
		if !k.hub.hold(x.strike, answer, m) {
			k.cutClient()
			return false, errEnded
		}
	case r.Action == delayAnswer:
		if err := k.flushClient(); err != nil {
			return false, err
		}
		time.Sleep(time.Duration(r.DelayMs) * time.Millisecond)
		k.hub.note(delayed, x.strike, m, answer)
	case r.Action == errorAnswer && r.Forward:
		made, changed := changedAnswer(x, frame, m, kafkaCode(r.Code))
		if made == nil {
			k.hub.note(failed, x.strike, m, "the answer has no schema here: it was passed on")
			return true, nil
		}
		k.hub.note(replaced, x.strike, changed, "forwarded")
		k.writing.Lock()
		_, err := k.toClient.Write(made)
		if err == nil {
			err = k.toClient.Flush()
		}
		k.writing.Unlock()
		if err != nil {
			return false, err
		}
		return false, k.sendIfMade()
	}
	return true, nil
}

func (k *kafka) passAnswer(size int) error {
	k.writing.Lock()
	err := passOn(k.toClient, k.fromServer, size)
	if err == nil {
		err = flushIfIdle(k.toClient, k.fromServer)
	}
	k.writing.Unlock()
	if err != nil {
		return err
	}
	return k.sendIfMade()
}

// sendIfMade is called when an answer of the broker was written.
func (k *kafka) sendIfMade() error {
	k.mutex.Lock()
	k.answering = false
	made := len(k.pending) > 0 && k.pending[0].made != nil
	k.mutex.Unlock()
	if !made {
		return nil
	}
	return k.sendMade()
}

func (k *kafka) flushClient() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.toClient.Flush()
}

func passOnNowhere(from io.Reader, size int) error {
	_, err := io.CopyN(io.Discard, from, int64(size))
	return err
}
