package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

const (
	bufferBytes  = 1 << 16
	mostRead     = 16 << 20 // a longer message is passed on unread
	drainTimeout = 5 * time.Second
	dialTimeout  = 10 * time.Second
	lateTimeout  = time.Minute
)

// link stands between a Toxiproxy proxy and its server, and reads the messages between them.
type link struct {
	Name     string `json:"name"` // the proxy's
	Protocol string `json:"protocol"`
	Upstream string `json:"upstream"`
	Listen   string `json:"listen"`

	hub         *hub
	listener    net.Listener
	mutex       sync.Mutex
	connections map[*connection]bool
}

// link puts a link behind a proxy: from now on the proxy leads to it, and it to where the proxy led. Connections that there are end.
func (h *hub) link(name, protocol, upstream string) (*link, error) {
	h.mutex.Lock()
	old := h.links[name]
	h.mutex.Unlock()
	if old != nil {
		return nil, fmt.Errorf("link %s: there is one already, to %s", name, old.Upstream)
	}
	if protocol != "kafka" && protocol != "postgres" {
		return nil, fmt.Errorf("link %s: expected the protocol kafka or postgres, came %q", name, protocol)
	}
	proxy, err := h.proxies.Get(name)
	if err != nil {
		return nil, fmt.Errorf("link %s: there is no proxy of that name", name)
	}
	if !proxy.Enabled || proxy.Upstream != upstream {
		return nil, fmt.Errorf("link %s: expected an enabled proxy that leads to %s, found enabled=%t to %s", name, upstream, proxy.Enabled, proxy.Upstream)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{
		Name: name, Protocol: protocol, Upstream: upstream, Listen: listener.Addr().String(),
		hub: h, listener: listener, connections: map[*connection]bool{},
	}
	go l.accept()
	proxy.Stop() // nobody may connect until the clients are counted
	h.clients.follow(name)
	if err := lead(proxy, l.Listen); err != nil {
		listener.Close()
		h.clients.forget(name)
		return nil, fmt.Errorf("link %s: the proxy could not be led to it: %w", name, err)
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.links[name] = l
	return l, nil
}

// unlink leads the proxy straight again, and ends the link with its connections.
func (h *hub) unlink(name string) error {
	h.mutex.Lock()
	l := h.links[name]
	delete(h.links, name)
	h.mutex.Unlock()
	if l == nil {
		return nil
	}
	var failure error
	if proxy, err := h.proxies.Get(name); err == nil { // else it is gone with its testbed
		failure = lead(proxy, l.Upstream)
	}
	l.end()
	h.clients.forget(name)
	return failure
}

// lead changes where the proxy leads to. It is enabled afterwards; its connections end.
func lead(proxy *toxiproxy.Proxy, upstream string) error {
	return proxy.Update(&toxiproxy.Proxy{Listen: proxy.Listen, Upstream: upstream, Enabled: true})
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		c := &connection{link: l, hub: l.hub, client: client, number: l.hub.connections.Add(1), port: l.hub.clients.next(l.Name)}
		go c.serve()
	}
}

func (l *link) end() {
	l.listener.Close()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for c := range l.connections {
		c.close()
	}
}

func (l *link) register(c *connection, there bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if there {
		l.connections[c] = true
	} else {
		delete(l.connections, c)
	}
}

// connection is one of a client, and the one to the server that belongs to it.
type connection struct {
	link   *link
	hub    *hub
	number int64
	port   int // the client's

	client, server net.Conn
	fromClient     *bufio.Reader
	fromServer     *bufio.Reader
	toServer       *bufio.Writer
	toClient       *bufio.Writer
	writing        sync.Mutex // of toClient: answers that are made here are written beside those of the server

	counted atomic.Int64
	cut     atomic.Bool // the client was cut; the server's connection may be kept for a late request
	kept    atomic.Bool
}

// dialogue is what a protocol does with a connection: each half until its end. The error tells why it ended; io.EOF is the good end.
type dialogue interface {
	requests() error
	answers() error
}

func (c *connection) serve() {
	defer c.client.Close()
	server, err := net.DialTimeout("tcp", c.link.Upstream, dialTimeout)
	if err != nil {
		return
	}
	c.server = server
	defer server.Close()
	c.link.register(c, true)
	defer c.link.register(c, false)
	c.fromClient, c.fromServer = bufio.NewReaderSize(c.client, bufferBytes), bufio.NewReaderSize(server, bufferBytes)
	c.toServer, c.toClient = bufio.NewWriterSize(server, bufferBytes), bufio.NewWriterSize(c.client, bufferBytes)
	var protocol dialogue
	if c.link.Protocol == "kafka" {
		protocol = newKafka(c)
	} else {
		protocol = newPostgres(c)
	}
	c.traceLife(opened)
	defer c.traceLife(closed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = protocol.answers()
		c.hangUp()
	}()
	_ = protocol.requests()
	c.lastWord(ended)
}

// lastWord passes the client's end on to the server and lets the last answers come; a connection that is kept waits for its late request.
func (c *connection) lastWord(ended chan struct{}) {
	if c.kept.Load() {
		select {
		case <-ended:
		case <-time.After(lateTimeout):
		}
		return
	}
	if c.cut.Load() {
		_, _ = io.Copy(io.Discard, c.fromClient) // until the deadline that hangUp sets
	}
	_ = c.toServer.Flush()
	if half, ok := c.server.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	select {
	case <-ended:
	case <-time.After(drainTimeout):
	}
}

// hangUp ends the client's connection with a FIN once all that was written is on its way. What still comes from the client is read and
// thrown away: to close a socket with unread data resets it, and the client could lose answers that it has not read yet.
func (c *connection) hangUp() {
	if !c.cut.CompareAndSwap(false, true) {
		return
	}
	c.writing.Lock()
	_ = c.toClient.Flush()
	c.writing.Unlock()
	half, ok := c.client.(*net.TCPConn)
	if !ok {
		return
	}
	_ = half.CloseWrite()
	_ = half.SetReadDeadline(time.Now().Add(drainTimeout))
}

// cutClient ends both connections; what the server sends from now on is not passed on.
func (c *connection) cutClient() {
	c.hangUp()
	_ = c.server.Close()
}

func (c *connection) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *connection) traceLife(direction string) {
	m := c.message(direction, "connection")
	c.hub.trace.write(m.stamped())
}

func (c *connection) message(direction, name string) message {
	return message{Link: c.link.Name, Protocol: c.link.Protocol, Connection: c.number, ClientPort: c.port, Direction: direction, Message: name}
}

// passOn copies so many bytes without looking at them.
func passOn(to *bufio.Writer, from *bufio.Reader, size int) error {
	_, err := io.CopyN(to, from, int64(size))
	return err
}

// flushIfIdle writes what is buffered when nothing else has come that could follow it.
func flushIfIdle(to *bufio.Writer, from *bufio.Reader) error {
	if from.Buffered() > 0 {
		return nil
	}
	return to.Flush()
}

var errEnded = errors.New("the connection was ended by a rule")
