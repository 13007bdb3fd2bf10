// Consume, transform, produce: a plain loop in Go on franz-go. The identity of a record is in its header "order-id", which is passed on.
// Offsets are committed once the output is acknowledged: at-least-once.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	commitEvery = 2 * time.Second
	pollFor     = 200 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("BOOTSTRAP_SERVERS"), ",")...),
		kgo.ConsumerGroup(os.Getenv("GROUP")),
		kgo.ConsumeTopics(os.Getenv("INPUT")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(os.Getenv("OUTPUT")),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	committed := time.Now()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, pollFor)
		records := client.PollRecords(poll, 500).Records()
		cancel()
		for _, record := range records {
			value := []byte(strings.ToUpper(string(record.Value)))
			out := &kgo.Record{Key: record.Key, Value: value, Headers: record.Headers}
			client.Produce(ctx, out, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					log.Fatal(err)
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			break
		}
		if time.Since(committed) > commitEvery {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				log.Print(err)
			}
			committed = time.Now()
		}
	}
}
