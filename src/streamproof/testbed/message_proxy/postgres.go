package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A message of PostgreSQL's protocol is a letter, its length in four bytes, and the rest; the first of a connection has no letter.
//
// A statement is run by Query, or by Execute of a portal that Bind made of what Parse was given. The server answers in order: each
// statement ends with CommandComplete or ErrorResponse, and each Query and each Sync with ReadyForQuery. Outside of a transaction it is
// only with ReadyForQuery that a statement is committed.

const (
	messageHead    = 5
	sslRequest     = 80877103
	gssRequest     = 80877104
	cancelRequest  = 80877102
	readyWait      = time.Second
	querySent      = 'Q'
	executeSent    = 'E'
	syncSent       = 'S'
	mostNames      = 4096
	mostCaptured   = 1 << 20
	readyForQuery  = 'Z'
	commandDone    = 'C'
	errorSent      = 'E'
	emptyQuery     = 'I'
	portalNotEnded = 's'
)

// postgres reads a connection between a client and a PostgreSQL server.
type postgres struct {
	*connection
	application string
	statements  map[string]string // SQL by the name of a prepared statement
	portals     map[string]string // SQL by the name of a portal

	mutex    sync.Mutex
	pending  []*statement // sent, and not answered
	answered []*statement // answered, until ReadyForQuery
	captured *statement   // whose answer is withheld from the client
	withheld []byte
}

// statement is one that was sent, or the Sync behind some.
type statement struct {
	by     byte // Query, Execute or Sync
	sent   message
	strike *strike
	made   bool // the server does not get it: the client gets an error
	told   bool // the event of its answer was noted

	results  []string
	sqlState string
}

func newPostgres(c *connection) *postgres {
	return &postgres{connection: c, statements: map[string]string{}, portals: map[string]string{}}
}

func (p *postgres) requests() error {
	for begun := false; !begun; {
		var err error
		if begun, err = p.startup(); err != nil {
			return err
		}
	}
	for {
		if err := flushIfIdle(p.toServer, p.fromClient); err != nil {
			return err
		}
		first, err := p.fromClient.Peek(messageHead)
		if err != nil {
			return err
		}
		if p.cut.Load() {
			_, err := io.Copy(io.Discard, p.fromClient)
			return err
		}
		if err := p.request(first[0], 1+int(binary.BigEndian.Uint32(first[1:]))); err != nil {
			return err
		}
	}
}

// startup reads the messages before the first with a letter. Encryption is refused: what is encrypted cannot be read.
func (p *postgres) startup() (bool, error) {
	first, err := p.fromClient.Peek(8)
	if err != nil {
		return false, err
	}
	size, code := int(binary.BigEndian.Uint32(first)), binary.BigEndian.Uint32(first[4:])
	switch {
	case code == sslRequest || code == gssRequest:
		if err := passOnNowhere(p.fromClient, size); err != nil {
			return false, err
		}
		return false, p.toTheClient([]byte{'N'})
	case code == cancelRequest || size > mostNames:
		return true, passOn(p.toServer, p.fromClient, size)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(p.fromClient, frame); err != nil {
		return false, err
	}
	var startup pgproto3.StartupMessage
	if startup.Decode(frame[4:]) == nil {
		p.application = startup.Parameters["application_name"]
	}
	_, err = p.toServer.Write(frame)
	return true, err
}

func (p *postgres) request(letter byte, size int) error {
	if size < messageHead {
		return errors.New("no message of PostgreSQL's protocol")
	}
	switch letter {
	case 'B':
		return p.bind(size)
	case 'S':
		p.push(&statement{by: syncSent})
	case 'F': // a function call; ReadyForQuery follows its answer
		p.push(&statement{by: syncSent})
	case 'P', 'Q', 'E':
		if size <= mostRead {
			return p.read(letter, size)
		}
		if letter == 'Q' {
			p.push(&statement{by: querySent, sent: p.describe("", size)})
		}
	}
	return passOn(p.toServer, p.fromClient, size)
}

// bind reads the names only: the values of the parameters, which follow, are nobody's business.
func (p *postgres) bind(size int) error {
	peeked, err := p.fromClient.Peek(min(size, mostNames))
	if err != nil {
		return err
	}
	portal, rest, _ := bytes.Cut(peeked[messageHead:], []byte{0})
	name, _, _ := bytes.Cut(rest, []byte{0})
	p.portals[string(portal)] = p.statements[string(name)]
	return passOn(p.toServer, p.fromClient, size)
}

func (p *postgres) read(letter byte, size int) error {
	frame := make([]byte, size)
	if _, err := io.ReadFull(p.fromClient, frame); err != nil {
		return err
	}
	body := frame[messageHead:]
	switch letter {
	case 'P':
		var parse pgproto3.Parse
		if err := parse.Decode(body); err == nil {
			p.statements[parse.Name] = parse.Query
		}
		_, err := p.toServer.Write(frame)
		return err
	case 'E':
		var execute pgproto3.Execute
		if err := execute.Decode(body); err != nil {
			return err
		}
		return p.run(executeSent, p.portals[execute.Portal], frame)
	default:
		var query pgproto3.Query
		if err := query.Decode(body); err != nil {
			return err
		}
		return p.run(querySent, query.String, frame)
	}
}

func (p *postgres) describe(sql string, size int) message {
	kinds, text := summary(sql)
	m := p.message(request, strings.Join(kinds, "; "))
	m.Number, m.SizeBytes, m.ClientID = p.counted.Add(1), size, p.application
	m.Statements, m.SQL, m.rawSQL = kinds, text, sql
	if sql == "" && size > mostRead {
		m.Unread = "longer than a message link reads"
	}
	return m.stamped()
}

// run sends a statement to the server, or does what a rule says to it.
func (p *postgres) run(by byte, sql string, frame []byte) error {
	s := &statement{by: by, sent: p.describe(sql, len(frame))}
	p.hub.trace.write(s.sent)
	if s.strike = p.hub.match(s.sent); s.strike == nil {
		return p.forward(s, frame)
	}
	if err := p.toServer.Flush(); err != nil {
		return err
	}
	r := s.strike.rule
	switch {
	case r.Action == hold && r.Side == request:
		if !p.hub.hold(s.strike, request, s.sent) {
			p.cutClient()
			return errEnded
		}
	case r.Action == dropRequest:
		p.hub.note(dropped, s.strike, s.sent, r.How)
		if r.How == "cut" {
			p.cutClient()
			return errEnded
		}
		_, err := io.Copy(io.Discard, p.fromClient)
		return err
	case r.Action == delayRequest:
		time.Sleep(time.Duration(r.DelayMs) * time.Millisecond)
		p.hub.note(delayed, s.strike, s.sent, request)
	case r.Action == lateRequest:
		return p.late(s, frame)
	case r.Action == errorAnswer && !r.Forward:
		return p.refuse(s)
	}
	if err := p.forward(s, frame); err != nil {
		p.hub.note(failed, s.strike, s.sent, err.Error())
		return err
	}
	return nil
}

func (p *postgres) forward(s *statement, frame []byte) error {
	p.push(s)
	_, err := p.toServer.Write(frame)
	return err
}

// late cuts the client at once and delivers its statement afterwards, in the session that was kept.
func (p *postgres) late(s *statement, frame []byte) error {
	p.kept.Store(true)
	p.hangUp()
	if !p.hub.waitLate(s.strike) {
		_ = p.server.Close()
		return errEnded
	}
	p.push(s)
	if s.by == executeSent {
		p.push(&statement{by: syncSent})
		frame = append(frame, encoded(&pgproto3.Sync{})...)
	}
	p.hub.note(late, s.strike, s.sent, "")
	if _, err := p.toServer.Write(frame); err != nil {
		return err
	}
	if err := p.toServer.Flush(); err != nil {
		p.hub.note(failed, s.strike, s.sent, err.Error())
		return err
	}
	return errEnded
}

// refuse gives the client an error for a statement that the server never gets. As after an error of the server's own, what follows is
// skipped until the next Sync; that one's ReadyForQuery, from the server, ends the answer.
func (p *postgres) refuse(s *statement) error {
	s.made = true
	p.push(s)
	if s.by == executeSent {
		return p.skipToSync()
	}
	p.push(&statement{by: syncSent})
	_, err := p.toServer.Write(encoded(&pgproto3.Sync{}))
	return err
}

func (p *postgres) skipToSync() error {
	for {
		first, err := p.fromClient.Peek(messageHead)
		if err != nil {
			return err
		}
		if first[0] == 'S' {
			return nil
		}
		if err := passOnNowhere(p.fromClient, 1+int(binary.BigEndian.Uint32(first[1:]))); err != nil {
			return err
		}
	}
}

func (p *postgres) push(s *statement) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.pending = append(p.pending, s)
}

// --- answers

func (p *postgres) answers() error {
	for {
		letter, size, err := p.nextAnswer()
		if err != nil {
			return err
		}
		if size == 0 { // silence: the answer is withheld without a ReadyForQuery, which may not have been asked for
			if err := p.decided(); err != nil {
				return err
			}
			continue
		}
		frame, err := p.readAnswer(letter, size)
		if err != nil {
			return err
		}
		if frame == nil {
			continue
		}
		if err := p.answer(letter, frame); err != nil {
			return err
		}
	}
}

// nextAnswer is the letter and the size of what comes next from the server; while something is withheld, a size of 0 when nothing comes.
func (p *postgres) nextAnswer() (byte, int, error) {
	if p.captured != nil {
		_ = p.server.SetReadDeadline(time.Now().Add(readyWait))
	}
	first, err := p.fromServer.Peek(messageHead)
	if p.captured != nil {
		_ = p.server.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, 0, nil
		}
	}
	if err != nil {
		return 0, 0, err
	}
	return first[0], 1 + int(binary.BigEndian.Uint32(first[1:])), nil
}

// readAnswer is the message when it says how a statement ended, or is withheld; any other is passed on, and nil.
func (p *postgres) readAnswer(letter byte, size int) ([]byte, error) {
	ends := bytes.IndexByte([]byte{commandDone, errorSent, emptyQuery, portalNotEnded, readyForQuery, 'G', 'H', 'W'}, letter) >= 0
	if size <= mostRead && (ends || p.captured != nil) {
		frame := make([]byte, size)
		_, err := io.ReadFull(p.fromServer, frame)
		return frame, err
	}
	if p.kept.Load() {
		return nil, passOnNowhere(p.fromServer, size)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := passOn(p.toClient, p.fromServer, size); err != nil {
		return nil, err
	}
	return nil, flushIfIdle(p.toClient, p.fromServer)
}

func (p *postgres) answer(letter byte, frame []byte) error {
	if p.captured != nil && (letter == 'G' || letter == 'H' || letter == 'W' || len(p.withheld) > mostCaptured) {
		// COPY begins: the client has to see that, or it will not go on. The end of the statement is still to come.
		if err := p.pass(p.withheld); err != nil {
			return err
		}
		p.captured, p.withheld = nil, nil
	}
	struck := p.take(letter, frame[messageHead:])
	if struck != nil && p.captured == nil {
		p.captured = struck
	}
	if p.captured == nil {
		if letter == readyForQuery {
			frame = p.completed(frame)
		}
		return p.pass(frame)
	}
	p.withheld = append(p.withheld, frame...)
	if letter == readyForQuery {
		return p.decided()
	}
	return nil
}

// take notes what the message says of the statements that were sent; it returns the one whose answer a rule withholds.
func (p *postgres) take(letter byte, body []byte) *statement {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if letter == readyForQuery {
		p.takeReady()
		return nil
	}
	if len(p.pending) == 0 {
		return nil
	}
	first := p.pending[0]
	switch letter {
	case commandDone:
		var done pgproto3.CommandComplete
		if first.by == syncSent || done.Decode(body) != nil {
			return nil
		}
		first.results = append(first.results, string(done.CommandTag))
	case emptyQuery, portalNotEnded:
		if first.by == syncSent {
			return nil
		}
		first.results = append(first.results, map[byte]string{emptyQuery: "empty", portalNotEnded: "suspended"}[letter])
	case errorSent:
		var failure pgproto3.ErrorResponse
		if failure.Decode(body) != nil {
			return nil
		}
		if first = p.takeError(failure.Code); first == nil {
			return nil
		}
		return first.withheld()
	default:
		return nil
	}
	if first.by == executeSent {
		p.pending, p.answered = p.pending[1:], append(p.answered, first)
	}
	return first.withheld()
}

// takeError needs the mutex. The statements behind one that failed are skipped by the server until the next Sync. What fails at the Sync
// itself is the commit of the last statement.
func (p *postgres) takeError(sqlState string) *statement {
	first := p.pending[0]
	switch first.by {
	case querySent:
		first.sqlState = sqlState
	case executeSent:
		first.sqlState = sqlState
		for len(p.pending) > 0 && p.pending[0].by == executeSent {
			p.answered, p.pending = append(p.answered, p.pending[0]), p.pending[1:]
		}
	case syncSent:
		if len(p.answered) == 0 {
			return nil
		}
		first = p.answered[len(p.answered)-1]
		first.sqlState = sqlState
	}
	return first
}

// takeReady needs the mutex.
func (p *postgres) takeReady() {
	for len(p.pending) > 0 {
		first := p.pending[0]
		p.pending = p.pending[1:]
		if first.by != syncSent {
			p.answered = append(p.answered, first)
		}
		if first.by != executeSent && !first.made {
			return
		}
	}
}

// withheld is the statement when its answer must not reach the client as it is.
func (s *statement) withheld() *statement {
	if s.strike == nil || s.told {
		return nil
	}
	switch r := s.strike.rule; {
	case r.Action == loseAnswer, r.Action == delayAnswer, r.Action == lateRequest, r.Action == hold && r.Side == answer, r.Action == errorAnswer && r.Forward:
		return s
	}
	return nil
}

// completed traces the statements that were answered, and returns what the client gets for the server's ReadyForQuery.
func (p *postgres) completed(ready []byte) []byte {
	state := map[byte]string{'I': "idle", 'T': "open", 'E': "failed"}[ready[len(ready)-1]]
	p.mutex.Lock()
	done := p.answered
	p.answered = nil
	p.mutex.Unlock()
	frame := ready
	for _, s := range done {
		m := s.answer(state)
		if s.made {
			m.SQLState = s.strike.rule.Code
			p.hub.note(replaced, s.strike, m, "not forwarded")
			frame = append(refusal(s.strike.rule), failedState(ready)...)
			s.told = true
			continue
		}
		p.hub.trace.write(m)
		p.hub.answeredNow(m)
		if s.strike != nil && !s.told {
			s.told = true
			p.hub.note(answered, s.strike, m, "")
		}
	}
	return frame
}

func (s *statement) answer(state string) message {
	m := s.sent
	m.Direction, m.Results, m.SQLState, m.Transaction = answer, s.results, s.sqlState, state
	return m.stamped()
}

// decided does what the rule says to the answer that is withheld.
func (p *postgres) decided() error {
	s, withheld := p.captured, p.withheld
	p.captured, p.withheld = nil, nil
	r := s.strike.rule
	var ready []byte
	if size := len(withheld); size >= 6 && withheld[size-6] == readyForQuery {
		ready = slices.Clone(withheld[size-6:])
		p.completed(ready)
	}
	m := s.answer("")
	if ready != nil {
		m = s.answer(map[byte]string{'I': "idle", 'T': "open", 'E': "failed"}[ready[5]])
	} else {
		s.told = true
		p.hub.note(answered, s.strike, m, "without ReadyForQuery")
	}
	switch r.Action {
	case loseAnswer:
		p.hub.note(lost, s.strike, m, "")
		p.cutClient()
		return errEnded
	case lateRequest:
		_ = p.server.Close()
		return errEnded
	case hold:
		if !p.hub.hold(s.strike, answer, m) {
			p.cutClient()
			return errEnded
		}
	case delayAnswer:
		time.Sleep(time.Duration(r.DelayMs) * time.Millisecond)
		p.hub.note(delayed, s.strike, m, answer)
	case errorAnswer:
		m.SQLState = r.Code
		p.hub.note(replaced, s.strike, m, "forwarded")
		withheld = append(refusal(r), failedState(ready)...)
	}
	return p.pass(withheld)
}

// pass writes to the client; a fatal error is the last that it gets.
func (p *postgres) pass(frame []byte) error {
	if p.kept.Load() {
		return nil
	}
	if err := p.toTheClient(frame); err != nil {
		return err
	}
	if len(frame) > messageHead && frame[0] == errorSent && bytes.Contains(frame, []byte("SFATAL\x00")) {
		p.cutClient()
		return errEnded
	}
	return nil
}

func (p *postgres) toTheClient(frame []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if _, err := p.toClient.Write(frame); err != nil {
		return err
	}
	return flushIfIdle(p.toClient, p.fromServer)
}

// refusal is the error that a rule gives to a client.
func refusal(r rule) []byte {
	severity := "ERROR"
	if r.Fatal {
		severity = "FATAL"
	}
	return encoded(&pgproto3.ErrorResponse{
		Severity: severity, SeverityUnlocalized: severity, Code: r.Code, Message: "streamproof: an error in place of the answer",
	})
}

// failedState is ReadyForQuery as it is after an error: a transaction that is open has failed, as far as the client is told.
func failedState(ready []byte) []byte {
	if len(ready) == 6 && ready[5] == 'T' {
		ready = slices.Clone(ready)
		ready[5] = 'E'
	}
	return ready
}

func encoded(m interface{ Encode([]byte) ([]byte, error) }) []byte {
	frame, err := m.Encode(nil)
	if err != nil {
		panic(err) // messages of a few fields that are all set here
	}
	return frame
}
