package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const flushEvery = 100 * time.Millisecond

// quiet are the messages that change nothing at a server; they are traced only when they are asked for by name.
var quiet = []string{
	"ApiVersions", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "DescribeCluster", "DescribeConfigs", "DescribeGroups", "Fetch", "FindCoordinator",
	"GetTelemetrySubscriptions", "Heartbeat", "ListOffsets", "ListTransactions", "DescribeTransactions", "Metadata", "OffsetFetch",
	"OffsetForLeaderEpoch", "PushTelemetry", "SASLAuthenticate", "SASLHandshake",
}

// trace writes each message that it is asked for to a file, as a line of JSON.
type trace struct {
	on    atomic.Bool
	mutex sync.Mutex
	also  []string
	path  string
	file  *os.File
	out   *bufio.Writer
	lines int64
	err   error
	ended chan struct{}
}

func (t *trace) wants(name string) bool {
	return t.on.Load() && (!slices.Contains(quiet, name) || slices.Contains(t.also, name))
}

// start appends to the file at path; also are messages among the quiet ones that are wanted.
func (t *trace) start(path string, also []string) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file != nil {
		return fmt.Errorf("there is a trace already, to %s", t.path)
	}
	if filepath.Ext(path) != ".jsonl" { // whoever reaches this interface must not write to any file there is
		return fmt.Errorf("trace: expected a file named *.jsonl, came %q", path)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	t.path, t.also, t.file, t.out, t.lines, t.err = path, also, file, bufio.NewWriterSize(file, 1<<16), 0, nil
	t.ended = make(chan struct{})
	t.on.Store(true)
	go t.flushes(t.ended)
	return nil
}

func (t *trace) flushes(ended chan struct{}) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
			t.flush()
		}
	}
}

func (t *trace) flush() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file != nil {
		t.keep(t.out.Flush())
	}
}

// keep needs the mutex. The first error is kept: a trace with a hole must not pass for whole.
func (t *trace) keep(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *trace) write(m message) {
	if !t.on.Load() {
		return
	}
	line, err := json.Marshal(m)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file == nil {
		return
	}
	t.keep(err)
	_, err = t.out.Write(append(line, '\n'))
	t.keep(err)
	t.lines++
}

// stop ends the trace; its error is the first that there was.
func (t *trace) stop() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file == nil {
		return nil
	}
	t.on.Store(false)
	close(t.ended)
	t.keep(t.out.Flush())
	t.keep(t.file.Close())
	t.file = nil
	return t.err
}

type traceState struct {
	Path  string `json:"path"`
	Lines int64  `json:"lines"`
	Error string `json:"error,omitempty"`
}

// state is where the trace is and how far it has come, with all of it in the file; nil without one.
func (t *trace) state() *traceState {
	t.flush()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.file == nil {
		return nil
	}
	state := &traceState{Path: t.path, Lines: t.lines}
	if t.err != nil {
		state.Error = t.err.Error()
	}
	return state
}
