package main

import (
	"fmt"
	"regexp"
	"slices"
)

// rule says which messages are struck, and what happens to them. What is absent matches everything.
type rule struct {
	ID              string   `json:"id"`
	Links           []string `json:"links,omitempty"`
	Message         string   `json:"message"`
	ClientID        string   `json:"client_id,omitempty"`        // a regular expression
	TransactionalID string   `json:"transactional_id,omitempty"` // a regular expression
	Topic           string   `json:"topic,omitempty"`
	SQL             string   `json:"sql,omitempty"`    // a regular expression
	Commit          *bool    `json:"commit,omitempty"` // of EndTxn
	Nth             int      `json:"nth"`              // the first that is struck, from 1, counted since the rule was made
	Every           int      `json:"every"`            // and from there each so many; 0 for no other
	Times           int      `json:"times"`            // how many are struck at most; 0 for any number
	Action          string   `json:"action"`
	Side            string   `json:"side,omitempty"`     // of hold: request or answer
	How             string   `json:"how,omitempty"`      // of drop_request: cut or black_hole
	DelayMs         int      `json:"delay_ms,omitempty"` // of delay_request, delay_answer; of late_request, which waits for its release without
	Until           string   `json:"until,omitempty"`    // of late_request: it goes once the server has answered this message
	Code            string   `json:"code,omitempty"`     // of error_answer: Kafka's error code, or an SQLSTATE
	Fatal           bool     `json:"fatal,omitempty"`    // of error_answer of PostgreSQL: the connection ends with it
	Forward         bool     `json:"forward,omitempty"`  // of error_answer: the server gets the request all the same

	Seen   int `json:"seen"`
	Struck int `json:"struck"`

	clientID, transactionalID, sql *regexp.Regexp
}

const (
	hold         = "hold"
	dropRequest  = "drop_request"
	loseAnswer   = "lose_answer"
	delayRequest = "delay_request"
	delayAnswer  = "delay_answer"
	lateRequest  = "late_request"
	errorAnswer  = "error_answer"
)

var actions = []string{hold, dropRequest, loseAnswer, delayRequest, delayAnswer, lateRequest, errorAnswer}

// check completes the rule. Its error names the field, what was expected and what came.
func (r *rule) check() error {
	r.Seen, r.Struck = 0, 0
	if r.ID == "" || r.Message == "" {
		return fmt.Errorf("rule: expected an id and a message, came %q and %q", r.ID, r.Message)
	}
	if !slices.Contains(messageNames(), r.Message) {
		return fmt.Errorf("rule %s: there is no message %q; Kafka's are named as in its protocol, PostgreSQL's are %v", r.ID, r.Message, statementKinds)
	}
	if !slices.Contains(actions, r.Action) {
		return fmt.Errorf("rule %s: expected one of the actions %v, came %q", r.ID, actions, r.Action)
	}
	if r.Until != "" && !slices.Contains(messageNames(), r.Until) {
		return fmt.Errorf("rule %s: until: there is no message %q", r.ID, r.Until)
	}
	if r.Nth == 0 {
		r.Nth = 1
	}
	if r.Nth < 0 || r.Every < 0 || r.Times < 0 || r.DelayMs < 0 {
		return fmt.Errorf("rule %s: expected nth, every, times and delay_ms of 0 or more, came %d, %d, %d, %d", r.ID, r.Nth, r.Every, r.Times, r.DelayMs)
	}
	if r.Every == 0 {
		r.Times = 1
	}
	if err := r.checkAction(); err != nil {
		return err
	}
	var err error
	for text, pattern := range map[*string]**regexp.Regexp{&r.ClientID: &r.clientID, &r.TransactionalID: &r.transactionalID, &r.SQL: &r.sql} {
		if *text == "" {
			continue
		}
		if *pattern, err = regexp.Compile(*text); err != nil {
			return fmt.Errorf("rule %s: expected a regular expression, came %q: %w", r.ID, *text, err)
		}
	}
	return nil
}

func (r *rule) checkAction() error {
	switch r.Action {
	case hold:
		if r.Side != request && r.Side != answer {
			return fmt.Errorf("rule %s: hold: expected the side request or answer, came %q", r.ID, r.Side)
		}
	case dropRequest:
		if r.How == "" {
			r.How = "cut"
		}
		if r.How != "cut" && r.How != "black_hole" {
			return fmt.Errorf("rule %s: drop_request: expected how to be cut or black_hole, came %q", r.ID, r.How)
		}
	case delayRequest, delayAnswer:
		if r.DelayMs == 0 {
			return fmt.Errorf("rule %s: %s: expected delay_ms above 0", r.ID, r.Action)
		}
	case errorAnswer:
		if slices.Contains(statementKinds, r.Message) != sqlState.MatchString(r.Code) || (!sqlState.MatchString(r.Code) && kafkaCode(r.Code) == 0) {
			return fmt.Errorf("rule %s: error_answer: expected Kafka's error code, or for PostgreSQL an SQLSTATE, came %q", r.ID, r.Code)
		}
	}
	return nil
}

var sqlState = regexp.MustCompile(`^[0-9A-Z]{5}$`)

func (r *rule) matches(m *message) bool {
	if r.Message != m.Message && !slices.Contains(m.Statements, r.Message) {
		return false
	}
	if len(r.Links) > 0 && !slices.Contains(r.Links, m.Link) {
		return false
	}
	if r.Topic != "" && !slices.ContainsFunc(m.Places, func(p place) bool { return p.Topic == r.Topic }) {
		return false
	}
	if r.Commit != nil && (m.Commit == nil || *r.Commit != *m.Commit) {
		return false
	}
	fits := func(pattern *regexp.Regexp, text string) bool { return pattern == nil || pattern.MatchString(text) }
	return fits(r.clientID, m.ClientID) && fits(r.transactionalID, m.TransactionalID) && fits(r.sql, m.rawSQL)
}

// count takes note of a message that matches and says whether it is struck.
func (r *rule) count() bool {
	r.Seen++
	behind := r.Seen - r.Nth
	struck := behind == 0 || (behind > 0 && r.Every > 0 && behind%r.Every == 0)
	if !struck || (r.Times > 0 && r.Struck >= r.Times) {
		return false
	}
	r.Struck++
	return true
}
