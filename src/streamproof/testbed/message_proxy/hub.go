package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

const mostEvents = 10_000

// event is something that happened to a message that a rule matched, or to a connection.
type event struct {
	Number  int64    `json:"number"`
	Kind    string   `json:"kind"`
	Rule    string   `json:"rule,omitempty"`
	Held    int64    `json:"held,omitempty"`
	Detail  string   `json:"detail,omitempty"`
	Message *message `json:"message,omitempty"`
	AtNs    int64    `json:"at_ns"`
}

// The kinds of events.
const (
	matched   = "matched"   // a request was struck by a rule
	held      = "held"      // it, or its answer, waits
	released  = "released"  // it goes on
	dropped   = "dropped"   // it is discarded; the server never gets a request that is
	answered  = "answered"  // the server's answer to a request that was struck
	lost      = "lost"      // the client does not get that answer
	delayed   = "delayed"   // it goes on after a delay
	late      = "late"      // a request was delivered after its client had been cut
	replaced  = "replaced"  // the client got an error in place of the answer
	discarded = "discarded" // a black hole took what came after a dropped request
	failed    = "failed"    // a connection broke while a message of a rule was under way
)

// strike is one message that was struck by a rule.
type strike struct {
	rule    rule
	message message
}

// waiting is a message that is held.
type waiting struct {
	ID      int64     `json:"id"`
	Rule    string    `json:"rule"`
	Side    string    `json:"side"`
	Message message   `json:"message"`
	decided chan bool // true: it goes on
}

// hub holds what all links share: the rules, what is held, the events, the trace.
type hub struct {
	proxies *toxiproxy.ProxyCollection
	clients *accepted
	trace   trace

	mutex       sync.Mutex
	links       map[string]*link
	rules       []*rule
	held        map[int64]*waiting
	events      []event
	lastEvent   int64
	news        chan struct{} // closed at the next event
	lastHeld    int64
	late        map[*lateness]bool
	connections atomic.Int64
	wanted      atomic.Pointer[map[string]bool] // the messages that some rule names
	topics      sync.Map                        // id of a topic -> its name
}

func newHub(proxies *toxiproxy.ProxyCollection, clients *accepted) *hub {
	h := &hub{proxies: proxies, clients: clients, links: map[string]*link{}, held: map[int64]*waiting{}, late: map[*lateness]bool{}, news: make(chan struct{})}
	h.wanted.Store(&map[string]bool{})
	return h
}

// wants says whether a message of that name has to be read.
func (h *hub) wants(name string) bool {
	return (*h.wanted.Load())[name] || h.trace.wants(name)
}

// match counts the message for each rule that it fits, and returns the strike of the first rule that strikes it, or nil.
func (h *hub) match(m message) *strike {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	var struck *strike
	for _, r := range h.rules {
		if r.matches(&m) && r.count() && struck == nil {
			struck = &strike{rule: *r, message: m}
		}
	}
	if struck != nil {
		h.tell(event{Kind: matched, Rule: struck.rule.ID, Message: &m})
	}
	return struck
}

func (h *hub) arm(r *rule) error {
	if err := r.check(); err != nil {
		return err
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if slices.ContainsFunc(h.rules, func(other *rule) bool { return other.ID == r.ID }) {
		return fmt.Errorf("rule %s: there is one of that id", r.ID)
	}
	h.rules = append(h.rules, r)
	h.setWanted()
	return nil
}

// disarm takes the rule away; what it holds is released.
func (h *hub) disarm(id string) bool {
	h.mutex.Lock()
	before := len(h.rules)
	h.rules = slices.DeleteFunc(h.rules, func(r *rule) bool { return r.ID == id })
	there := len(h.rules) < before
	h.setWanted()
	var left []int64
	for number, w := range h.held {
		if w.Rule == id {
			left = append(left, number)
		}
	}
	h.mutex.Unlock()
	for _, number := range left {
		h.decide(number, true)
	}
	return there
}

func (h *hub) setWanted() {
	wanted := map[string]bool{}
	for _, r := range h.rules {
		wanted[r.Message] = true
		wanted[r.Until] = true
	}
	h.wanted.Store(&wanted)
}

// hold waits until somebody decides about the message; true when it goes on. A connection that ends does not decide.
func (h *hub) hold(s *strike, side string, m message) bool {
	h.mutex.Lock()
	h.lastHeld++
	w := &waiting{ID: h.lastHeld, Rule: s.rule.ID, Side: side, Message: m, decided: make(chan bool, 1)}
	h.held[w.ID] = w
	h.tell(event{Kind: held, Rule: s.rule.ID, Held: w.ID, Message: &m, Detail: side})
	h.mutex.Unlock()
	return <-w.decided
}

// lateness is a request that is to be delivered late.
type lateness struct {
	request message
	until   string
	now     chan struct{}
}

// waitLate waits until a request of late_request is to be delivered; false when it is dropped.
func (h *hub) waitLate(s *strike) bool {
	r := s.rule
	if r.DelayMs == 0 && r.Until == "" {
		return h.hold(s, request, s.message)
	}
	l := &lateness{request: s.message, until: r.Until, now: make(chan struct{}, 1)}
	h.mutex.Lock()
	h.late[l] = true
	h.mutex.Unlock()
	delay := time.Duration(r.DelayMs) * time.Millisecond
	if r.DelayMs == 0 {
		delay = lateTimeout / 2
	}
	select {
	case <-l.now:
	case <-time.After(delay):
	}
	h.mutex.Lock()
	delete(h.late, l)
	h.mutex.Unlock()
	return true
}

// answeredNow lets the requests go that wait for this answer: of the same client and transaction, over another connection.
func (h *hub) answeredNow(m message) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for l := range h.late {
		r := l.request
		if l.until == m.Message && r.ClientID == m.ClientID && r.TransactionalID == m.TransactionalID && r.Connection != m.Connection {
			select {
			case l.now <- struct{}{}:
			default:
			}
		}
	}
}

// decide releases or drops what is held under that number; false when nothing is.
func (h *hub) decide(number int64, goesOn bool) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	w, there := h.held[number]
	if !there {
		return false
	}
	delete(h.held, number)
	kind := dropped
	if goesOn {
		kind = released
	}
	h.tell(event{Kind: kind, Rule: w.Rule, Held: number, Message: &w.Message})
	w.decided <- goesOn
	return true
}

func (h *hub) note(kind string, s *strike, m message, detail string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.tell(event{Kind: kind, Rule: s.rule.ID, Message: &m, Detail: detail})
}

// tell needs the mutex.
func (h *hub) tell(e event) {
	h.lastEvent++
	e.Number, e.AtNs = h.lastEvent, time.Now().UnixNano()
	h.events = append(h.events, e)
	if len(h.events) > mostEvents {
		h.events = slices.Clone(h.events[mostEvents/10:])
	}
	close(h.news)
	h.news = make(chan struct{})
}

// since are the events behind that number, of one rule unless id is empty; waits for one until the time is over.
func (h *hub) since(number int64, id string, wait time.Duration) ([]event, int64) {
	deadline := time.After(wait)
	for {
		h.mutex.Lock()
		found := []event{}
		for _, e := range h.events {
			if e.Number > number && (id == "" || e.Rule == id) {
				found = append(found, e)
			}
		}
		last, news := h.lastEvent, h.news
		h.mutex.Unlock()
		if len(found) > 0 {
			return found, last
		}
		select {
		case <-news:
		case <-deadline:
			return found, last
		}
	}
}

// clear leaves nothing: no rule, nothing held, no event, no trace, every proxy straight again.
func (h *hub) clear() error {
	h.mutex.Lock()
	h.rules = nil
	h.setWanted()
	held, links := []int64{}, []*link{}
	for number := range h.held {
		held = append(held, number)
	}
	for _, l := range h.links {
		links = append(links, l)
	}
	h.mutex.Unlock()
	for _, number := range held {
		h.decide(number, true)
	}
	var first error
	for _, l := range links {
		if err := h.unlink(l.Name); err != nil && first == nil {
			first = err
		}
	}
	h.mutex.Lock()
	h.events = nil
	h.mutex.Unlock()
	if err := h.trace.stop(); err != nil && first == nil {
		first = err
	}
	return first
}
