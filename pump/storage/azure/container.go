package azure

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/queuepump/queuepump/pump/storage"
)

// sdkBlobVersion is what azqueue asks for. azblob asks for a newer version, which Azurite does not
// know (azsim/AZURE.md D24).
const sdkBlobVersion = "2026-04-06"

// container is a handle on one container. One client of azblob makes the requests for all blobs of
// the account; the driver puts the address into each. azblob's package container is left out: it
// brings Apache Arrow into every binary (D23).
type container struct {
	account *account
	name    string
}

var (
	errContainerName = errors.New(
		"the name of a container is 3 to 63 lower-case letters, digits and dashes")
	errBlobName = errors.New("the name of a blob is up to 1000 letters, digits and _.~/-, " +
		"without an empty part, . or .., and not ending in a dot")
	errMetadata = errors.New("metadata has names of small letters, digits and _, values of " +
		"printable ASCII without a blank at their ends, and at most 8 KiB of both")
	errLength = errors.New("a part of a blob begins within it and has 1 to 268435456 bytes")
	errOrder  = errors.New("the names are not in the order of their bytes; an account with a " +
		"hierarchical namespace cannot be used for blobs")
)

func (a *account) Container(name string) storage.Container { return &container{a, name} }

func (c *container) Name() string { return c.name }

func validBlobName(s string) bool {
	if !within(s, 1, 1000, func(b byte) bool {
		return letter(b) || digit(b) || strings.IndexByte("_.~/-", b) >= 0
	}) || strings.HasSuffix(s, ".") {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// object is what errors name.
func (c *container) object(name string) string {
	if name == "" {
		return c.name
	}
	return c.name + "/" + name
}

// do makes one request of the container, or of the blob if name is not empty.
func (c *container) do(
	ctx context.Context, op, name string, query url.Values, x *exchange,
	call func(context.Context, *blockblob.Client) error,
) error {
	a := c.account
	var wrong error
	switch {
	case a.noBlobs != nil:
		wrong = a.noBlobs
	case !validQueueName(c.name):
		wrong = errContainerName
	case query == nil && !validBlobName(name):
		wrong = errBlobName
	}
	if wrong != nil {
		return a.invalid(storage.Invalid, op, c.object(name), wrong)
	}
	address := *a.blobURL
	address.Path = strings.TrimSuffix(address.Path, "/") + "/" + c.object(name)
	address.RawQuery = strings.Trim(query.Encode()+"&"+address.RawQuery, "&")
	x.raw = &raw{address: &address}
	return a.do(ctx, op, c.object(name), x, func(ctx context.Context) error {
		return call(ctx, a.blobs)
	})
}

// read has the SDK make a GET; the exchange may make another request of it.
func read(ctx context.Context, client *blockblob.Client) error {
	_, err := client.DownloadStream(ctx, nil)
	return err
}

func (c *container) Create(ctx context.Context) error {
	x := &exchange{method: http.MethodPut, want: http.StatusCreated, limit: smallAnswer}
	err := c.do(ctx, "create", "", url.Values{"restype": {"container"}}, x, read)
	if serviceCode(err) == "ContainerAlreadyExists" {
		return nil
	}
	return err
}

func (c *container) Put(
	ctx context.Context, name string, body []byte, metadata map[string]string,
) error {
	if len(body) > storage.MaxBlob {
		err := fmt.Errorf("the blob has %d bytes; at most %d go into one", len(body), storage.MaxBlob)
		return c.account.invalid(storage.TooLarge, "put", c.object(name), err)
	}
	o, size := &blockblob.UploadOptions{Metadata: make(map[string]*string, len(metadata))}, 0
	for k, v := range metadata {
		if size += len(k) + len(v); !validMetadata(k, v) || size > 8<<10 {
			return c.account.invalid(storage.Invalid, "put", c.object(name), errMetadata)
		}
		o.Metadata[k] = &v
	}
	// net/http may go on reading a body after its answer.
	x := &exchange{
		body: bytes.Clone(body), contentType: "application/octet-stream", bare: len(body) == 0,
		want: http.StatusCreated, limit: smallAnswer,
	}
	if x.bare {
		x.body = nil
	}
	return c.do(ctx, "put", name, nil, x, func(ctx context.Context, client *blockblob.Client) error {
		_, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), o)
		return err
	})
}

func validMetadata(name, value string) bool {
	small := func(b byte) bool { return 'a' <= b && b <= 'z' || digit(b) || b == '_' }
	visible := func(b byte) bool { return ' ' <= b && b <= '~' }
	return within(name, 1, 256, small) && !digit(name[0]) &&
		within(value, 1, 8<<10, visible) && value == strings.TrimSpace(value)
}

func (c *container) Get(
	ctx context.Context, name string, offset, length int64,
) (storage.Blob, error) {
	if offset < 0 || length < 1 || length > storage.MaxBlob {
		return storage.Blob{}, c.account.invalid(storage.Invalid, "get", c.object(name), errLength)
	}
	// A part is answered 206: the page of something on the way there, 200, is not a blob.
	x := &exchange{want: http.StatusPartialContent, limit: length}
	err := c.do(ctx, "get", name, nil, x, func(ctx context.Context, client *blockblob.Client) error {
		o := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset, Count: length}}
		_, err := client.DownloadStream(ctx, o)
		return err
	})
	if offset == 0 && serviceCode(err) == "InvalidRange" { // of an empty blob
		return storage.Blob{Name: name}, nil
	}
	if err != nil {
		return storage.Blob{}, err
	}
	b := storage.Blob{
		Name: name, Body: x.answer, Metadata: map[string]string{},
		Modified: httpTime([]byte(x.header.Get("Last-Modified"))),
	}
	var last int64
	_, err = fmt.Sscanf(x.header.Get("Content-Range"), fmt.Sprintf("bytes %d-%%d/%%d", offset),
		&last, &b.Size)
	switch {
	case err == nil && offset == b.Size && len(x.answer) == 0: // so Azurite (azsim/AZURE.md B9)
		return storage.Blob{}, c.account.invalid(storage.Invalid, "get", c.object(name), errLength)
	case err != nil, last-offset+1 != int64(len(x.answer)), last+1 != min(offset+length, b.Size):
		return storage.Blob{}, c.account.unreadable("get", c.object(name), x, err)
	}
	for k, v := range x.header {
		if k, found := strings.CutPrefix(strings.ToLower(k), "x-ms-meta-"); found && len(v) == 1 {
			b.Metadata[k] = v[0]
		}
	}
	return b, nil
}

func (c *container) Delete(ctx context.Context, name string) error {
	x := &exchange{want: http.StatusAccepted, limit: smallAnswer}
	return c.do(ctx, "delete", name, nil, x,
		func(ctx context.Context, client *blockblob.Client) error {
			_, err := client.Delete(ctx, nil)
			return err
		})
}

// blobPage is the answer to a List.
type blobPage struct {
	XMLName xml.Name `xml:"EnumerationResults"`
	Blobs   []struct {
		Name     string `xml:"Name"`
		Size     int64  `xml:"Properties>Content-Length"`
		Modified string `xml:"Properties>Last-Modified"`
		Metadata struct {
			Of []struct {
				XMLName xml.Name
				Value   string `xml:",chardata"`
			} `xml:",any"`
		} `xml:"Metadata"`
	} `xml:"Blobs>Blob"`
	NextMarker string `xml:"NextMarker"`
}

func (c *container) List(ctx context.Context, prefix, from string) iter.Seq2[storage.Blob, error] {
	return func(yield func(storage.Blob, error) bool) {
		query := url.Values{"restype": {"container"}, "comp": {"list"}, "include": {"metadata"}}
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		// Versions of the service before 2026-02-06 do not know startFrom, and Azurite did not long ago.
		if from > prefix {
			query.Set("startFrom", from)
		}
		for last := ""; from <= prefix || strings.HasPrefix(from, prefix); {
			x := &exchange{want: http.StatusOK, limit: blobsAnswer}
			err := c.do(ctx, "list", "", query, x, read)
			if err != nil {
				yield(storage.Blob{}, err)
				return
			}
			var page blobPage
			if err = xml.Unmarshal(trimBOM(x.answer), &page); err != nil {
				yield(storage.Blob{}, c.account.unreadable("list", c.name, x, err))
				return
			}
			for _, of := range page.Blobs {
				if of.Name <= last {
					yield(storage.Blob{}, c.account.unreadable("list", c.name, x, errOrder))
					return
				}
				last = of.Name
				if last < from || !strings.HasPrefix(last, prefix) {
					continue
				}
				b := storage.Blob{
					Name: last, Size: of.Size, Modified: httpTime([]byte(of.Modified)),
					Metadata: make(map[string]string, len(of.Metadata.Of)),
				}
				for _, m := range of.Metadata.Of {
					b.Metadata[strings.ToLower(m.XMLName.Local)] = m.Value
				}
				if !yield(b, nil) {
					return
				}
			}
			if page.NextMarker == "" {
				return
			}
			if page.NextMarker == query.Get("marker") {
				err = c.account.unreadable("list", c.name, x, errors.New("the same page twice"))
				yield(storage.Blob{}, err)
				return
			}
			query.Set("marker", page.NextMarker)
		}
	}
}
