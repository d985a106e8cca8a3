package azsim

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// bare is a client without an SDK: what these benchmarks measure is the
// simulator.
type bare struct {
	b  *testing.B
	tr *Transport
}

func (c bare) do(method, target string, body []byte) []byte {
	req, err := http.NewRequestWithContext(c.b.Context(), method, "https://acct.queue.core.windows.net"+target, bytes.NewReader(body))
	must(c.b, err)
	req.Header["Authorization"] = []string{"Bearer x"}
	resp, err := c.tr.Do(req)
	must(c.b, err)
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		c.b.Fatalf("%s %s: %s %s %v", method, target, resp.Status, out, err)
	}
	return out
}

func benchClient(b *testing.B) bare {
	s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: NoLimits()})
	c := bare{b, s.Transport()}
	c.do("PUT", "/queue", nil)
	b.ReportAllocs()
	return c
}

// BenchmarkPut puts messages of 1 KiB and of a full envelope, in a queue that
// gets as deep as the benchmark is long.
func BenchmarkPut(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			c := benchClient(b)
			body := []byte(text(strings.Repeat("QUJD", size/4)))
			for b.Loop() {
				c.do("POST", "/queue/messages?messagettl=-1", body)
			}
		})
	}
}

// BenchmarkGet32 gets 32 messages of 1 KiB from a queue of a million.
func BenchmarkGet32(b *testing.B) {
	c := benchClient(b)
	store := c.tr.sim.accounts["acct"].stores.Load().queues.(*queueStore)
	q := store.queues["queue"]
	body := bytes.Repeat([]byte("QUJD"), 256)
	for i := range uint64(1_000_000) {
		q.messages.add(&message{id: drawGUID(i), text: string(body), plain: true, expires: never}, 1)
	}
	for b.Loop() {
		c.do("GET", "/queue/messages?numofmessages=32&visibilitytimeout=1", nil)
	}
}

// BenchmarkLife is put, get and delete of one message of 1 KiB.
func BenchmarkLife(b *testing.B) {
	c := benchClient(b)
	body := []byte(text(strings.Repeat("QUJD", 256)))
	for b.Loop() {
		c.do("POST", "/queue/messages?messagettl=-1", body)
		out := c.do("GET", "/queue/messages", nil)
		id, _, _ := bytes.Cut(out[bytes.Index(out, []byte("<MessageId>"))+11:], []byte("<"))
		receipt, _, _ := bytes.Cut(out[bytes.Index(out, []byte("<PopReceipt>"))+12:], []byte("<"))
		c.do("DELETE", "/queue/messages/"+string(id)+"?popreceipt="+strings.ReplaceAll(strings.ReplaceAll(string(receipt), "+", "%2B"), "/", "%2F"), nil)
	}
}

// BenchmarkSharedKey verifies the signature of a put.
func BenchmarkSharedKey(b *testing.B) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	r := &request{account: s.accounts["acct"], service: queueService, method: "POST", header: http.Header{
		"X-Ms-Date": {"Sat, 01 Jan 2000 00:00:00 GMT"}, "X-Ms-Version": {"2026-04-06"}, "Content-Length": {"1024"}, "Content-Type": {"application/xml"},
	}, query: map[string][]string{"messagettl": {"-1"}, "visibilitytimeout": {"0"}}}
	c := &call{path: "/queue/messages"}
	b.ReportAllocs()
	for b.Loop() {
		if r.account.signed(r.stringToSign(c, false), "AAAA") {
			b.Fatal("forged")
		}
	}
}
