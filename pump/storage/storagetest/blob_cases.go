package storagetest

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/pump/storage"
)

// putBlob writes a blob of a name as its body.
func (c *C) putBlob(box storage.Container, name string) {
	c.must(box.Put(c.ctx, name, []byte(name), nil))
}

// listed are the names that a list gives.
func (c *C) listed(box storage.Container, prefix, from string) (names []string) {
	for b, err := range box.List(c.ctx, prefix, from) {
		c.must(err)
		names = append(names, b.Name)
	}
	return names
}

// Cases about containers and block blobs.
var blobCases = []testCase{
	{name: "creating a container that exists is success", run: func(c *C) {
		box := c.container()
		c.must(box.Create(c.ctx))
	}},
	{name: "every request of a container that is not there is Missing", run: func(c *C) {
		box := c.Account.Container(c.name())
		c.want(storage.Missing, errOf(box.Get(c.ctx, "blob", 0, 1)), "get")
		c.want(storage.Missing, box.Put(c.ctx, "blob", []byte("x"), nil), "put")
		c.want(storage.Missing, box.Delete(c.ctx, "blob"), "delete")
		for _, err := range box.List(c.ctx, "", "") {
			c.want(storage.Missing, err, "list")
		}
	}},
	{name: "a blob is read as it was put, with its metadata", run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		every := make([]byte, 1<<16)
		for i := range every {
			every[i] = byte(i)
		}
		metadata := map[string]string{"tasks": "17", "first_of": "run 1, ~"}
		for name, body := range map[string][]byte{"some": every, "a/b.c/D~_-9": {0}, "empty": {}} {
			c.must(box.Put(c.ctx, prefix+name, body, metadata))
			b, err := box.Get(c.ctx, prefix+name, 0, 1<<20)
			c.must(err)
			if !bytes.Equal(b.Body, body) || b.Size != int64(len(body)) || b.Name != prefix+name {
				c.Errorf("%s: %d bytes of %d, %q", name, len(b.Body), b.Size, b.Name)
			}
			if len(body) > 0 && (!maps.Equal(b.Metadata, metadata) || b.Modified.IsZero()) {
				c.Errorf("%s: metadata %v, modified %v", name, b.Metadata, b.Modified)
			}
		}
	}},
	{name: "a put replaces the blob and its metadata", run: func(c *C) {
		box := c.container()
		name := c.blobs(box) + "x"
		c.must(box.Put(c.ctx, name, []byte("the old one"), map[string]string{"old": "1"}))
		c.must(box.Put(c.ctx, name, []byte("new"), map[string]string{"new": "2"}))
		b, err := box.Get(c.ctx, name, 0, 100)
		c.must(err)
		want := map[string]string{"new": "2"}
		if string(b.Body) != "new" || b.Size != 3 || !maps.Equal(b.Metadata, want) {
			c.Errorf("%q of %d, %v", b.Body, b.Size, b.Metadata)
		}
	}},
	{name: "a part of a blob is read, and the size of the whole told", run: func(c *C) {
		box := c.container()
		name := c.blobs(box) + "x"
		c.must(box.Put(c.ctx, name, []byte("0123456789"), nil))
		for _, part := range []struct {
			offset, length int64
			want           string
		}{
			{0, 4, "0123"}, {4, 4, "4567"}, {8, 4, "89"}, {9, 1, "9"}, {0, storage.MaxBlob, "0123456789"},
		} {
			b, err := box.Get(c.ctx, name, part.offset, part.length)
			c.must(err)
			if string(b.Body) != part.want || b.Size != 10 {
				c.Errorf("%d from %d on: %q of %d", part.length, part.offset, b.Body, b.Size)
			}
		}
		c.want(storage.Invalid, errOf(box.Get(c.ctx, name, 10, 1)), "get from the end on")
	}},
	{name: "a blob that is not there is Gone", run: func(c *C) {
		box := c.container()
		name := c.blobs(box) + "x"
		c.want(storage.Gone, errOf(box.Get(c.ctx, name, 0, 1)), "get")
		c.want(storage.Gone, box.Delete(c.ctx, name), "delete")
		c.putBlob(box, name)
		c.must(box.Delete(c.ctx, name))
		c.want(storage.Gone, errOf(box.Get(c.ctx, name, 0, 1)), "get after delete")
		c.want(storage.Gone, box.Delete(c.ctx, name), "second delete")
		if names := c.listed(box, name, ""); len(names) > 0 {
			c.Errorf("listed after delete: %q", names)
		}
	}},
	{name: "blobs are listed by prefix, from a name on, in the order of bytes", run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		var want []string
		for _, name := range []string{"b", "a", "a/2", "a-2", "a/10", "B", "c.d", "c~"} {
			c.putBlob(box, prefix+name)
			want = append(want, prefix+name)
		}
		slices.Sort(want)
		starting := func(names []string, with string) (some []string) {
			for _, name := range names {
				if strings.HasPrefix(name, with) {
					some = append(some, name)
				}
			}
			return some
		}
		for _, of := range []struct {
			prefix, from string
			want         []string
		}{
			{prefix, "", want},
			{prefix, prefix, want},
			{prefix + "a", "", starting(want, prefix+"a")},
			{prefix, want[3], want[3:]},
			{prefix, want[3] + "!", want[4:]},
			{prefix, prefix + "~", nil},
			{prefix + "a/", prefix + "a/2", []string{prefix + "a/2"}},
			{prefix + "none", "", nil},
			{prefix, "~", nil},
		} {
			if got := c.listed(box, of.prefix, of.from); !slices.Equal(got, of.want) {
				c.Errorf("%q from %q: %q, want %q", of.prefix, of.from, got, of.want)
			}
		}
	}},
	{name: "a list tells sizes, times and metadata", run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		c.must(box.Put(c.ctx, prefix+"x", []byte("0123456789"), map[string]string{"tasks": "<1>&2"}))
		c.must(box.Put(c.ctx, prefix+"y", nil, nil))
		sizes := map[string]int64{}
		for b, err := range box.List(c.ctx, prefix, "") {
			c.must(err)
			sizes[b.Name] = b.Size
			want := map[string]string{}
			if b.Size > 0 {
				want["tasks"] = "<1>&2"
			}
			if b.Modified.IsZero() || len(b.Body) > 0 || !maps.Equal(b.Metadata, want) {
				c.Errorf("%+v", b)
			}
		}
		if want := (map[string]int64{prefix + "x": 10, prefix + "y": 0}); !maps.Equal(sizes, want) {
			c.Errorf("%v", sizes)
		}
	}},
	{name: "names, parts and metadata that cannot be are refused unsent", run: func(c *C) {
		box := c.container()
		sent := c.sending()
		for _, name := range []string{
			"", "/x", "x/", "a//b", "../x", "a/../b", "./x", "x.", "a b", "a?b", "a%2fb", "ä", "a\\b",
			strings.Repeat("x", 1001),
		} {
			c.want(storage.Invalid, box.Put(c.ctx, name, nil, nil), "put "+name)
			c.want(storage.Invalid, errOf(box.Get(c.ctx, name, 0, 1)), "get "+name)
			c.want(storage.Invalid, box.Delete(c.ctx, name), "delete "+name)
		}
		for _, part := range [][2]int64{{-1, 1}, {0, 0}, {0, -1}, {0, storage.MaxBlob + 1}} {
			c.want(storage.Invalid, errOf(box.Get(c.ctx, "x", part[0], part[1])), "get a part")
		}
		for k, v := range map[string]string{
			"Upper": "x", "a-b": "x", "1a": "x", "": "x", "empty": "", "blank": " x", "line": "a\nb",
			"umlaut": "ä", "long": strings.Repeat("x", 8<<10),
		} {
			c.want(storage.Invalid, box.Put(c.ctx, "x", nil, map[string]string{k: v}), "metadata "+k)
		}
		c.want(storage.Invalid, c.Account.Container("No_Name").Create(c.ctx), "create")
		sent(0)
	}},
	{name: "a put of a blob whose answer is lost is put again", run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		for how, fault := range acted {
			name := prefix + how
			put := func() error { return box.Put(c.ctx, name, []byte("x"), map[string]string{"k": "v"}) }
			c.maybe(fault, "put, answer "+how, put)
			if got := c.listed(box, name, ""); len(got) != 1 {
				c.Errorf("answer %s: %q", how, got)
			}
			c.must(put())
		}
		c.maybe(LoseRequest, "put", func() error { return box.Put(c.ctx, prefix+"z", nil, nil) })
		if got := c.listed(box, prefix+"z", ""); len(got) != 0 {
			c.Errorf("a put that was lost: %q", got)
		}
	}},
	{name: "an answer about blobs that is not whole is never taken for one", run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		for how, fault := range acted {
			c.putBlob(box, prefix+how)
			c.maybe(fault, "get, answer "+how, func() error {
				return errOf(box.Get(c.ctx, prefix+how, 0, 100))
			})
			c.maybe(fault, "list, answer "+how, func() (last error) {
				for _, err := range box.List(c.ctx, prefix, "") {
					last = err
				}
				return last
			})
			c.maybe(fault, "delete, answer "+how, func() error { return box.Delete(c.ctx, prefix+how) })
			c.want(storage.Gone, box.Delete(c.ctx, prefix+how), "delete again, answer "+how)
		}
		c.Wire.Break(Busy, 1)
		c.want(storage.Throttled, box.Put(c.ctx, prefix+"x", nil, nil), "put, busy")
	}},
	{name: "more blobs than a page holds are listed, each once", virtual: true, run: func(c *C) {
		box := c.container()
		prefix := c.blobs(box)
		const n = 5003
		for i := range n {
			c.must(box.Put(c.ctx, prefix+string(rune('a'+i%26))+strings.Repeat("x", i/26), nil, nil))
		}
		before := c.Wire.Requests()
		names := c.listed(box, prefix, "")
		if len(slices.Compact(names)) != n || c.Wire.Requests()-before != 2 {
			c.Errorf("%d names by %d requests", len(names), c.Wire.Requests()-before)
		}
		if rest := c.listed(box, prefix, names[2]); len(rest) != n-2 {
			c.Errorf("%d names from the third on", len(rest))
		}
	}},
}
