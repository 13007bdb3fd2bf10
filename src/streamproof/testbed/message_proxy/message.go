package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// place is a partition that a message names: with how many records, up to which offset, and the error that the server answered.
type place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Records   *int   `json:"records,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Error     *int16 `json:"error,omitempty"`
}

// message is a request or an answer, as far as it was read: a line of the trace, and the content of an event.
type message struct {
	AtNs            int64    `json:"at_ns"`
	MonotonicNs     int64    `json:"monotonic_ns"`
	Link            string   `json:"link"`
	Protocol        string   `json:"protocol"`
	Connection      int64    `json:"connection"`
	ClientPort      int      `json:"client_port"`
	Number          int64    `json:"number"` // of the request within its connection; an answer has its request's
	Direction       string   `json:"direction"`
	Message         string   `json:"message"`
	SizeBytes       int      `json:"size_bytes"`
	Unread          string   `json:"unread,omitempty"` // why its content is not known
	Version         *int16   `json:"version,omitempty"`
	Correlation     *int32   `json:"correlation,omitempty"`
	ClientID        string   `json:"client_id,omitempty"`
	TransactionalID string   `json:"transactional_id,omitempty"`
	ProducerID      *int64   `json:"producer_id,omitempty"`
	ProducerEpoch   *int16   `json:"producer_epoch,omitempty"`
	Group           string   `json:"group,omitempty"`
	Commit          *bool    `json:"commit,omitempty"`
	Acks            *int16   `json:"acks,omitempty"`
	Places          []place  `json:"places,omitempty"`
	Errors          []int16  `json:"errors,omitempty"` // every error code of an answer, each once
	Statements      []string `json:"statements,omitempty"`
	SQL             string   `json:"sql,omitempty"` // without any value
	Results         []string `json:"results,omitempty"`
	SQLState        string   `json:"sqlstate,omitempty"`
	Transaction     string   `json:"transaction,omitempty"` // of PostgreSQL's session after the answer: idle, open, failed
	rawSQL          string
}

const (
	request = "request"
	answer  = "answer"
	opened  = "opened"
	closed  = "closed"
)

// stamped is the message with the time now, on both clocks: Python's time.time_ns() and time.monotonic_ns() read the same two.
func (m message) stamped() message {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		m.MonotonicNs = now.Nano()
	}
	m.AtNs = time.Now().UnixNano()
	return m
}

func pointer[T any](value T) *T { return &value }
