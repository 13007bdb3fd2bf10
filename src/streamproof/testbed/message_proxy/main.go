// The testbed's proxy server: Toxiproxy, used as a library, with message links behind its proxies.
//
// Toxiproxy breaks bytes, a message link breaks messages of Kafka's and PostgreSQL's protocols. A proxy with a link leads
//
//	client -> Toxiproxy -> message link -> server
//
// and one without leads straight to its server. The links have their HTTP interface at /messages, on Toxiproxy's own port.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func main() {
	host := flag.String("host", "127.0.0.1", "the address at which the HTTP interface listens")
	port := flag.String("port", "8474", "its port")
	version := flag.Bool("version", false, "print the version of Toxiproxy")
	flag.Parse()
	if *version {
		fmt.Printf("toxiproxy-server version %s, with message links\n", toxiproxy.Version)
		return
	}
	if err := serve(net.JoinHostPort(*host, *port)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	clients := newAccepted()
	logger := zerolog.New(zerolog.MultiLevelWriter(os.Stdout, clients)).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), logger)
	routes := api.Routes()
	newInterface(newHub(api.Collection, clients)).register(routes.PathPrefix("/messages").Subrouter())
	server := &http.Server{Addr: address, Handler: routes, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-signals:
		return server.Close()
	case err := <-ended:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
}
