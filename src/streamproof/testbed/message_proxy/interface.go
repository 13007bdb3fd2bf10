package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"
)

const mostWait = 20 * time.Second // Toxiproxy gives a request 25 s

// httpInterface is what a run asks of the links, in JSON.
type httpInterface struct{ hub *hub }

func newInterface(h *hub) *httpInterface { return &httpInterface{h} }

func (i *httpInterface) register(routes *mux.Router) {
	handle := func(path, method string, do func(*http.Request) (any, error)) {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { respond(w, r, do) }).Methods(method)
	}
	handle("", "GET", i.state)
	handle("", "DELETE", func(*http.Request) (any, error) { return nil, i.hub.clear() })
	handle("/links", "POST", i.link)
	handle("/links/{name}", "DELETE", func(r *http.Request) (any, error) { return nil, i.hub.unlink(mux.Vars(r)["name"]) })
	handle("/rules", "POST", i.arm)
	handle("/rules/{id}", "DELETE", i.disarm)
	handle("/held/{number}/{decision:release|drop}", "POST", i.decide)
	handle("/events", "GET", i.events)
	handle("/trace", "POST", i.startTrace)
	handle("/trace", "DELETE", func(*http.Request) (any, error) { return nil, i.hub.trace.stop() })
}

// notThere is the error for what does not exist; any other is a bad request.
type notThere struct{ error }

func respond(w http.ResponseWriter, r *http.Request, do func(*http.Request) (any, error)) {
	result, err := do(r)
	status := http.StatusOK
	if err != nil {
		status, result = http.StatusBadRequest, map[string]string{"error": err.Error()}
		if _, missing := err.(notThere); missing {
			status = http.StatusNotFound
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(result)
}

func read(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

type state struct {
	Links []*link     `json:"links"`
	Rules []*rule     `json:"rules"`
	Held  []*waiting  `json:"held"`
	Trace *traceState `json:"trace"`
	Last  int64       `json:"last_event"`
}

func (i *httpInterface) state(*http.Request) (any, error) {
	s := state{Links: []*link{}, Rules: []*rule{}, Held: []*waiting{}, Trace: i.hub.trace.state()}
	i.hub.mutex.Lock()
	defer i.hub.mutex.Unlock()
	for _, l := range i.hub.links {
		s.Links = append(s.Links, l)
	}
	for _, r := range i.hub.rules {
		copied := *r
		s.Rules = append(s.Rules, &copied)
	}
	for _, w := range i.hub.held {
		s.Held = append(s.Held, w)
	}
	s.Last = i.hub.lastEvent
	return s, nil
}

func (i *httpInterface) link(r *http.Request) (any, error) {
	var asked struct{ Name, Protocol, Upstream string }
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	return i.hub.link(asked.Name, asked.Protocol, asked.Upstream)
}

func (i *httpInterface) arm(r *http.Request) (any, error) {
	var asked rule
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	if err := i.hub.arm(&asked); err != nil {
		return nil, err
	}
	return asked, nil
}

func (i *httpInterface) disarm(r *http.Request) (any, error) {
	if id := mux.Vars(r)["id"]; !i.hub.disarm(id) {
		return nil, notThere{fmt.Errorf("there is no rule %q", id)}
	}
	return nil, nil
}

func (i *httpInterface) decide(r *http.Request) (any, error) {
	number, _ := strconv.ParseInt(mux.Vars(r)["number"], 10, 64)
	if !i.hub.decide(number, mux.Vars(r)["decision"] == "release") {
		return nil, notThere{fmt.Errorf("nothing is held under the number %q", mux.Vars(r)["number"])}
	}
	return nil, nil
}

func (i *httpInterface) events(r *http.Request) (any, error) {
	query := r.URL.Query()
	after, err := strconv.ParseInt(query.Get("after"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("events: after: expected a number, came %q", query.Get("after"))
	}
	wait, err := time.ParseDuration(query.Get("wait_s") + "s")
	if err != nil || wait < 0 || wait > mostWait {
		return nil, fmt.Errorf("events: wait_s: expected 0 to %.0f, came %q", mostWait.Seconds(), query.Get("wait_s"))
	}
	found, last := i.hub.since(after, query.Get("rule"), wait)
	return map[string]any{"events": found, "last": last}, nil
}

func (i *httpInterface) startTrace(r *http.Request) (any, error) {
	var asked struct {
		Path string
		Also []string
	}
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	return nil, i.hub.trace.start(asked.Path, asked.Also)
}
