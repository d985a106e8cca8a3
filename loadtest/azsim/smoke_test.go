package azsim

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

func TestSmoke(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "one"}}})
	srv, err := s.Listen("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for name, c := range map[string]struct {
		cs string
		o  *azqueue.ClientOptions
	}{
		"tcp":       {srv.ConnectionString("one"), &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}},
		"transport": {s.ConnectionString("one"), &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: s.Transport(), Retry: policy.RetryOptions{MaxRetries: -1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			sc, err := azqueue.NewServiceClientFromConnectionString(c.cs, c.o)
			if err != nil {
				t.Fatal(err)
			}
			q := sc.NewQueueClient("smoke" + name)
			if _, err := q.Create(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := q.EnqueueMessage(ctx, "a<b&c>", nil); err != nil {
				t.Fatal(err)
			}
			got, err := q.DequeueMessages(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := got.Messages[0]
			if *m.MessageText != "a<b&c>" {
				t.Fatal(*m.MessageText)
			}
			u, err := q.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "zwei", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.DeleteMessage(ctx, *m.MessageID, *u.PopReceipt, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}
