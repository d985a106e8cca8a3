package azure

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

// canned answers every request with the same bytes at no cost to speak of.
func canned(status int, body string, header http.Header) transportFunc {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req}, nil
	}
}

func answerOf(messages, size int) string {
	var b strings.Builder
	b.WriteString("\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>")
	text := strings.Repeat("QUJDREVGRw+/", size/12)
	for i := range messages {
		fmt.Fprintf(&b, "<QueueMessage><MessageId>f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f%02x</MessageId><InsertionTime>Wed, 11 Sep 2019 02:21:08 GMT</InsertionTime>"+
			"<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>AgAAAAMAAAAAAAAAMhKHpEdo1QE=</PopReceipt>"+
			"<TimeNextVisible>Wed, 11 Sep 2019 02:21:38 GMT</TimeNextVisible><DequeueCount>1</DequeueCount><MessageText>%s</MessageText></QueueMessage>", i, text)
	}
	b.WriteString("</QueueMessagesList>")
	return b.String()
}

func BenchmarkGet32(b *testing.B) {
	for _, size := range []int{1 << 10, 23 << 10, 64 << 10} {
		doc := answerOf(32, size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			a := openFake(b, canned(200, doc, http.Header{}))
			q := a.Queue("queue")
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if ms, err := q.Get(b.Context(), 32, time.Minute); err != nil || len(ms) != 32 {
					b.Fatal(err)
				}
			}
		})
		// What the SDK by itself makes of the same answer.
		b.Run(fmt.Sprintf("%dKiB-SDK", size>>10), func(b *testing.B) {
			o := &azqueue.ClientOptions{}
			o.Transport, o.Retry = canned(200, doc, http.Header{}), policy.RetryOptions{MaxRetries: -1}
			c, err := azqueue.NewQueueClientFromConnectionString(testConnection, "queue", o)
			must(b, err)
			n := int32(32)
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if r, err := c.DequeueMessages(b.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: &n}); err != nil || len(r.Messages) != 32 {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 23 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			a := openFake(b, canned(201, azureGet, http.Header{}))
			q, text := a.Queue("queue"), bytes.Repeat([]byte("A"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				must(b, proof.ErrOf(q.Put(b.Context(), text, 0)))
			}
		})
	}
}

func BenchmarkDelete(b *testing.B) {
	a := openFake(b, canned(204, "", http.Header{}))
	q := a.Queue("queue")
	b.ReportAllocs()
	for b.Loop() {
		must(b, q.Delete(b.Context(), testReceipt))
	}
}

// As most requests are made: by a goroutine of their own, whose stack is small when it begins.
func BenchmarkDeleteByGoroutine(b *testing.B) {
	a := openFake(b, canned(204, "", http.Header{}))
	q := a.Queue("queue")
	done := make(chan error)
	b.ReportAllocs()
	for b.Loop() {
		go func() { done <- q.Delete(b.Context(), testReceipt) }()
		must(b, <-done)
	}
}
