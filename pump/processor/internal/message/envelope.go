package message

import (
	"cmp"
	"encoding/hex"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Pack makes an envelope with the header h of some of a message's tasks. It is not ok if they do
// not fit.
func (d *Delivery) Pack(h codec.Header, tasks []int, limit int) (text []byte, ok bool) {
	b, env := codec.NewBuilder(limit), d.Env
	if env != nil && d.Worked.Load() { // handlers may have changed the bytes of theirs in place
		var err error
		if env, err = codec.Open(d.Text, codec.Limits{}); err != nil {
			return nil, false
		}
		defer env.Release()
	}
	if h.NotNow != (codec.NotNow{}) {
		h.Version = codec.Version
	}
	b.Reset(h)
	for _, i := range tasks {
		var ct codec.Task
		if env != nil { // a handler may have put other values into its task
			ct = env.Tasks[i]
		} else { // it keeps its name in every queue (P1.4)
			ct = codec.Task{ID: []byte(d.Foreign), Body: d.Content()}
			ct.Key = shardmap.StoredKey(d.Key, ct.Body, d.Segments)
		}
		if fits, err := b.Add(ct); err != nil || !fits {
			return nil, false
		}
	}
	text, _, err := b.Seal(nil)
	return text, err == nil
}

// Apart is the header of a message of some of these tasks that is put beside it.
func (d *Delivery) Apart() codec.Header {
	h := d.Header
	h.NotNow.Here = 0
	return h
}

// Wrap makes an envelope of a text that no distributor made; the envelope says the text's name. It
// is not ok if there is no room: the body is close to 64 KiB and does not compress.
func (d *Delivery) Wrap(attempt uint32) (text []byte, ok bool) {
	if d.Foreign == "" {
		return nil, false
	}
	h := d.Apart()
	h.Attempt = attempt
	for _, most := range [...]int{storage.MaxText - codec.DefaultHeadroom, storage.MaxText} {
		b := codec.NewBuilder(most)
		b.Reset(h)
		only := codec.Task{ID: []byte(d.Foreign), Key: d.Key, Body: d.Content()}
		if fits, err := b.Add(only); err == nil && fits {
			text, _, err = b.Seal(nil)
			return text, err == nil
		}
	}
	return nil, false
}

// RowKey is a message as a row key of its account and queue. Message ids are GUIDs, but they come
// from outside, so others are encoded.
func RowKey(account, queue, id string) string {
	return account + "." + queue + "." + safeID(id)
}

func safeID(id string) string {
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return "x" + hex.EncodeToString([]byte(id[:min(len(id), 64)]))
		}
	}
	return cmp.Or(id[:min(len(id), 128)], "none")
}
