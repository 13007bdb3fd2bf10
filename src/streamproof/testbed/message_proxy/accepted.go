package main

import (
	"bytes"
	"encoding/json"
	"net"
	"strconv"
	"sync"
)

// accepted knows the clients of each proxy that has a link, in the order in which the proxy connected them.
//
// A link sees Toxiproxy's connection, not the client's, and Toxiproxy does not say which belongs to which. But each proxy accepts a
// client, logs its address and connects it, one after the other: the n-th client in the log is the n-th connection of the link.
type accepted struct {
	mutex sync.Mutex
	ports map[string][]int
}

func newAccepted() *accepted {
	return &accepted{ports: map[string][]int{}}
}

// Write gets each line of Toxiproxy's log.
func (a *accepted) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte(`"Accepted client"`)) {
		return len(line), nil
	}
	var entry struct{ Name, Client string }
	if err := json.Unmarshal(line, &entry); err != nil {
		return len(line), nil
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, linked := a.ports[entry.Name]; linked {
		a.ports[entry.Name] = append(a.ports[entry.Name], portOf(entry.Client))
	}
	return len(line), nil
}

// follow begins anew with a proxy; nobody must be connecting to it.
func (a *accepted) follow(proxy string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.ports[proxy] = []int{}
}

func (a *accepted) forget(proxy string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.ports, proxy)
}

// next is the port of the client whose connection the link has just accepted, 0 when it is not known.
func (a *accepted) next(proxy string) int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	waiting := a.ports[proxy]
	if len(waiting) == 0 {
		return 0
	}
	a.ports[proxy] = waiting[1:]
	return waiting[0]
}

func portOf(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(text)
	return port
}
