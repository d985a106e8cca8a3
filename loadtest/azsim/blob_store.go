package azsim

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBlobBody is the most that one Put Blob takes in any version of the service that is in use;
// newer versions take 5,000 MiB (AZURE.md B2).
const maxBlobBody = 256 << 20

// blobStore is the part of an account's blob service that a pump needs: containers and whole block
// blobs. It knows neither versions, snapshots, leases and tiers nor blocks.
type blobStore struct {
	account *account

	mu         sync.Mutex // guards the rest; never held across anything that waits
	containers map[string]*blobContainer
	deleted    map[string]time.Time // containers whose names are still taken, until when
}

// blobContainer is one container.
type blobContainer struct {
	blobs map[string]*blob
	names []string // of blobs, sorted
}

// blob is one block blob. It is replaced, never changed.
type blob struct {
	body     []byte
	metadata map[string]string
	modified time.Time
	etag     string
}

func newBlobStore(a *account) backend {
	return &blobStore{
		account: a, containers: make(map[string]*blobContainer), deleted: make(map[string]time.Time),
	}
}

// policies implements backend: a signature is of the account.
func (s *blobStore) policies(string) ([]signedIdentifier, bool) { return nil, false }

// route tells the operations of the blob service apart (AZURE.md B1).
func (s *blobStore) route(r *request) (*operation, reply) {
	path, err := url.PathUnescape(strings.TrimPrefix(r.path, "/"))
	if err != nil {
		return nil, r.fail(http.StatusBadRequest, "InvalidUri", "")
	}
	name, blobName, within := strings.Cut(path, "/")
	if name == "" {
		if !strings.EqualFold(r.query.Get("comp"), "list") || !reads(r) {
			return nil, unsupported(r)
		}
		op := &operation{resource: 's'}
		return op.is("ListContainers", "", "l", func() reply { return s.listContainers(r) })
	}
	if rep := checkQueueName(r, name); rep != nil { // the same rules
		return nil, *rep
	}
	if within && blobName != "" {
		return s.routeBlob(r, name, blobName)
	}
	op := &operation{object: name, resource: 'c'}
	comp := strings.ToLower(r.query.Get("comp"))
	switch {
	case !strings.EqualFold(r.query.Get("restype"), "container"):
		return nil, r.fail(http.StatusBadRequest, "InvalidUri", "")
	case comp == "" && r.method == http.MethodPut:
		return op.is("CreateContainer", "", "c,w", func() reply { return s.create(r, name) })
	case comp == "" && r.method == http.MethodDelete:
		return op.is("DeleteContainer", "", "d", func() reply { return s.drop(r, name) })
	case comp == "list" && reads(r):
		op.name, op.accountPermission = "ListBlobs", "l"
		op.run = s.with(r, name, func(c *blobContainer) reply { return s.list(r, name, c) })
	default:
		return nil, unsupported(r)
	}
	return op, reply{}
}

func (s *blobStore) routeBlob(r *request, name, blobName string) (*operation, reply) {
	op := &operation{object: name, partition: name + "\x00" + blobName, resource: 'o'}
	switch {
	case r.query.Get("comp") != "":
		return nil, badParameter(r, "comp", r.query.Get("comp"), "")
	case r.method == http.MethodPut:
		op.name, op.accountPermission = "PutBlob", "c,w"
		op.run = s.with(r, name, func(c *blobContainer) reply { return s.put(r, c, blobName) })
	case r.method == http.MethodDelete:
		op.name, op.accountPermission = "DeleteBlob", "d"
		op.run = s.with(r, name, func(c *blobContainer) reply { return c.remove(r, blobName) })
	case reads(r):
		op.name, op.accountPermission = "GetBlob", "r"
		if r.method == http.MethodHead {
			op.name = "GetBlobProperties"
		}
		op.run = s.with(r, name, func(c *blobContainer) reply { return c.get(r, blobName) })
	default:
		return nil, unsupported(r)
	}
	return op, reply{}
}

// with is f on a container that is there, under the lock, or the answer 404.
func (s *blobStore) with(r *request, name string, f func(c *blobContainer) reply) func() reply {
	return func() reply {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.containers[name]
		if c == nil {
			return r.fail(http.StatusNotFound, "ContainerNotFound", "")
		}
		return f(c)
	}
}

func (s *blobStore) create(r *request, name string) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch until, deleted := s.deleted[name]; {
	case s.containers[name] != nil:
		return r.fail(http.StatusConflict, "ContainerAlreadyExists", "")
	case deleted && r.now.Before(until):
		return r.fail(http.StatusConflict, "ContainerBeingDeleted", "")
	}
	delete(s.deleted, name)
	s.containers[name] = &blobContainer{blobs: make(map[string]*blob)}
	return reply{status: http.StatusCreated}
}

func (s *blobStore) drop(r *request, name string) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[name] == nil {
		return r.fail(http.StatusNotFound, "ContainerNotFound", "")
	}
	delete(s.containers, name)
	maps.DeleteFunc(s.deleted, func(_ string, until time.Time) bool { return !r.now.Before(until) })
	s.deleted[name] = r.now.Add(s.account.beingDeleted)
	return reply{status: http.StatusAccepted}
}

func (s *blobStore) put(r *request, c *blobContainer, name string) reply {
	metadata, refused := readMetadata(r)
	switch kind := r.header.Get("X-Ms-Blob-Type"); {
	case refused != nil:
		return *refused
	case kind == "":
		return r.fail(http.StatusBadRequest, "MissingRequiredHeader", "",
			element{"HeaderName", "x-ms-blob-type"})
	case kind != "BlockBlob":
		return r.fail(http.StatusBadRequest, "InvalidHeaderValue", "",
			element{"HeaderName", "x-ms-blob-type"}, element{"HeaderValue", kind})
	case len(name) > 1024:
		return r.fail(http.StatusBadRequest, "InvalidResourceName", "")
	}
	b := &blob{body: r.body, metadata: metadata, modified: r.now}
	b.etag = fmt.Sprintf(`"0x%X"`, drawMix(s.account.seed, drawHash(name), uint64(r.now.UnixNano())))
	if c.blobs[name] == nil {
		at, _ := slices.BinarySearch(c.names, name)
		c.names = slices.Insert(c.names, at, name)
	}
	c.blobs[name] = b
	return reply{status: http.StatusCreated, header: b.header()}
}

func (c *blobContainer) remove(r *request, name string) reply {
	at, found := slices.BinarySearch(c.names, name)
	if !found {
		return r.fail(http.StatusNotFound, "BlobNotFound", "")
	}
	c.names = slices.Delete(c.names, at, at+1)
	delete(c.blobs, name)
	return reply{status: http.StatusAccepted}
}

func (b *blob) header() http.Header {
	return http.Header{
		"Etag": {b.etag}, "Last-Modified": {b.modified.Format(http.TimeFormat)},
	}
}

// get serves the whole blob or a part of it.
func (c *blobContainer) get(r *request, name string) reply {
	b := c.blobs[name]
	if b == nil {
		return r.fail(http.StatusNotFound, "BlobNotFound", "")
	}
	h, body, status := b.header(), b.body, http.StatusOK
	text := cmp.Or(r.header.Get("X-Ms-Range"), r.header.Get("Range"))
	if from, to, ok := readRange(text); ok {
		size := int64(len(body))
		if from >= size {
			rep := r.fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "")
			rep.header.Set("Content-Range", "bytes */"+itoa(size))
			return rep
		}
		to = min(to, size-1)
		body, status = body[from:to+1], http.StatusPartialContent
		h["Content-Range"] = []string{fmt.Sprintf("bytes %d-%d/%d", from, to, size)}
	}
	for k, v := range b.metadata {
		h[http.CanonicalHeaderKey("x-ms-meta-"+k)] = []string{v}
	}
	h["Content-Type"] = []string{"application/octet-stream"}
	h["X-Ms-Blob-Type"] = []string{"BlockBlob"}
	h["Accept-Ranges"], h["Content-Length"] = []string{"bytes"}, []string{itoa(int64(len(body)))}
	return reply{status: status, header: h, body: body}
}

// readRange reads bytes=FROM-[TO], the one form that the service takes; others are as none.
func readRange(text string) (from, to int64, ok bool) {
	span, found := strings.CutPrefix(text, "bytes=")
	first, last, dash := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !found || !dash || err != nil || from < 0 {
		return 0, 0, false
	}
	if last == "" {
		return from, 1<<63 - 1, true
	}
	to, err = strconv.ParseInt(last, 10, 64)
	return from, to, err == nil && to >= from
}

// list: learn.microsoft.com/rest/api/storageservices/list-blobs. A marker names the first blob of
// the next page, in a form that clients cannot guess the name from.
func (s *blobStore) list(r *request, container string, c *blobContainer) reply {
	limit, rep := intParameter(r, "maxresults", maxListed, 1, 1<<31-1)
	if rep != nil {
		return *rep
	}
	prefix, marker := r.query.Get("prefix"), r.query.Get("marker")
	name, err := base64.URLEncoding.DecodeString(marker)
	if err != nil {
		return badParameter(r, "marker", marker, "")
	}
	first, _ := slices.BinarySearch(c.names, max(prefix, r.query.Get("startFrom"), string(name)))
	b := []byte(xmlProlog + `<EnumerationResults ServiceEndpoint="`)
	b = appendXMLAttr(b, legalXML(r.baseURL)+"/")
	b = append(b, `" ContainerName="`+container+`">`...)
	b = appendElement(b, "Prefix", legalXML(prefix))
	b = appendElement(b, "Marker", marker)
	b = append(b, "<Blobs>"...)
	next, listed := "", int64(0)
	for _, name := range c.names[first:] {
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if listed++; listed > min(limit, maxListed) {
			next = base64.URLEncoding.EncodeToString([]byte(name))
			break
		}
		of := c.blobs[name]
		b = append(b, "<Blob>"...)
		b = appendElement(b, "Name", legalXML(name))
		b = append(b, "<Properties>"...)
		b = appendElement(b, "Last-Modified", of.modified.Format(http.TimeFormat))
		b = appendElement(b, "Etag", of.etag)
		b = appendElement(b, "Content-Length", itoa(int64(len(of.body))))
		b = append(b, "<BlobType>BlockBlob</BlobType></Properties>"...)
		if slices.Contains(strings.Split(r.query.Get("include"), ","), "metadata") {
			b = append(b, "<Metadata>"...)
			for _, k := range slices.Sorted(maps.Keys(of.metadata)) {
				b = appendElement(b, k, legalXML(of.metadata[k]))
			}
			b = append(b, "</Metadata>"...)
		}
		b = append(b, "</Blob>"...)
	}
	b = appendElement(append(b, "</Blobs>"...), "NextMarker", next)
	b = append(b, "</EnumerationResults>"...)
	return reply{status: http.StatusOK, header: xmlNoCache(), body: b}
}

// listContainers: learn.microsoft.com/rest/api/storageservices/list-containers2. They are one page.
func (s *blobStore) listContainers(r *request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := appendXMLAttr([]byte(xmlProlog+`<EnumerationResults ServiceEndpoint="`), legalXML(r.baseURL))
	b = append(b, `/"><Containers>`...)
	for _, name := range slices.Sorted(maps.Keys(s.containers)) {
		if strings.HasPrefix(name, r.query.Get("prefix")) {
			b = append(appendElement(append(b, "<Container>"...), "Name", name), "</Container>"...)
		}
	}
	b = append(b, `</Containers><NextMarker /></EnumerationResults>`...)
	return reply{status: http.StatusOK, header: xmlNoCache(), body: b}
}

// Blobs are the names of the blobs of a container, sorted; nil without such a container.
func (s *Sim) Blobs(account, container string) []string {
	a := s.accounts[account]
	if a == nil {
		return nil
	}
	store := a.stores.Load().blobs.(*blobStore)
	store.mu.Lock()
	defer store.mu.Unlock()
	if c := store.containers[container]; c != nil {
		return slices.Clone(c.names)
	}
	return nil
}
