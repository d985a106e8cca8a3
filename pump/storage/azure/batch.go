package azure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/pump/storage"
)

// The boundaries can be fixed: they begin with a line end, and the parts are
// headers of our own making and JSON, which has no raw line end in it. The same
// transaction is therefore the same bytes when it is sent again.
const (
	batchBoundary  = "batch_queuepump"
	changeBoundary = "changeset_queuepump"
)

func (t *table) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	object := t.name
	if len(writes) > 0 {
		object = t.object(writes[0].Entity.Partition, strconv.Itoa(len(writes))+" rows")
	}
	if code, index, err := checkTransaction(writes); err != nil {
		return nil, &storage.Error{
			Code: code, Op: "transact", Account: t.account.name, Object: object, Index: index, Err: err,
		}
	}
	body, index, err := t.batchBody(writes)
	if err != nil {
		return nil, &storage.Error{
			Code: storage.Invalid, Op: "transact", Account: t.account.name, Object: object, Index: index,
			Err: err,
		}
	}
	x := &exchange{
		body: body, contentType: "multipart/mixed; boundary=" + batchBoundary, want: http.StatusAccepted,
		limit: batchAnswer, pool: true,
	}
	defer x.release() // readBatch copies its results
	err = t.do(ctx, "transact", object, x, func(ctx context.Context) error {
		// One action of any kind makes the request; its whole body is replaced.
		_, err := t.client.SubmitTransaction(ctx, []aztables.TransactionAction{{
			ActionType: aztables.TransactionTypeAdd, Entity: placeholder(writes[0].Entity),
		}}, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	parts, err := readBatch(x.header.Get("Content-Type"), x.answer)
	if err != nil {
		return nil, t.account.unreadable("transact", object, x, err)
	}
	return t.outcome(object, writes, x, parts)
}

// checkTransaction refuses what the service refuses and Azurite does not: it writes rows of two
// partitions and answers garbage to 101 rows (azsim/AZURE.md T31, T32).
func checkTransaction(writes []storage.Write) (storage.Code, int, error) {
	switch {
	case len(writes) == 0:
		return storage.Invalid, -1, errors.New("a transaction without writes")
	case len(writes) > storage.MaxBatch:
		return storage.TooLarge, -1,
			fmt.Errorf("%d writes; a transaction holds %d", len(writes), storage.MaxBatch)
	}
	rows := make(map[string]bool, len(writes))
	for i, w := range writes {
		if w.Entity.Partition != writes[0].Entity.Partition {
			return storage.Invalid, i, errors.New("a transaction is about one partition")
		}
		if rows[w.Entity.Row] {
			return storage.Invalid, i, errors.New("a transaction writes each row once")
		}
		rows[w.Entity.Row] = true
	}
	return 0, -1, nil
}

// batchBody writes the changeset. On an error index names the write.
func (t *table) batchBody(writes []storage.Write) (body []byte, index int, err error) {
	var b bytes.Buffer
	b.Grow(len(writes) << 10)
	b.WriteString("--" + batchBoundary + "\r\nContent-Type: multipart/mixed; boundary=" +
		changeBoundary + "\r\n\r\n")
	address := t.account.tableURL + "/" + t.name
	for i, w := range writes {
		row, err := writeBody(w)
		if err != nil {
			return nil, i, err
		}
		method := http.MethodPost
		switch w.Mode {
		case storage.Replace, storage.Upsert:
			method = http.MethodPut
		case storage.Merge:
			method = http.MethodPatch
		case storage.Remove:
			method = http.MethodDelete
		}
		b.WriteString("--" + changeBoundary + "\r\nContent-Type: application/http\r\n" +
			"Content-Transfer-Encoding: binary\r\n\r\n" + method + " " + address)
		if w.Mode != storage.Insert {
			b.WriteString("(PartitionKey='" + w.Entity.Partition + "',RowKey='" + w.Entity.Row + "')")
		}
		b.WriteString(" HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n" +
			"DataServiceVersion: 3.0\r\nx-ms-version: " + t.account.tableVersion + "\r\n")
		switch w.Mode {
		case storage.Insert:
			b.WriteString("Prefer: return-no-content\r\n")
		case storage.Replace, storage.Merge, storage.Remove:
			b.WriteString("If-Match: " + string(condition(w)) + "\r\n")
		}
		if row != nil {
			b.WriteString("Content-Type: application/json\r\nContent-Length: " +
				strconv.Itoa(len(row)) + "\r\n")
		}
		b.WriteString("\r\n")
		b.Write(row)
		b.WriteString("\r\n")
	}
	b.WriteString("--" + changeBoundary + "--\r\n--" + batchBoundary + "--\r\n")
	return b.Bytes(), -1, nil
}

// part is the answer to one write of a batch.
type part struct {
	status int
	header http.Header
	body   []byte
}

// readBatch takes the multipart answer apart. The SDK reports every failed
// batch as 202 and drops the ETags of one that succeeded (azsim/AZURE.md D21).
func readBatch(contentType string, body []byte) ([]part, error) {
	outer, err := multipartReader(contentType, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	changes, err := outer.NextRawPart()
	if err != nil {
		return nil, err
	}
	inner, err := multipartReader(changes.Header.Get("Content-Type"), changes)
	if err != nil {
		return nil, err
	}
	var parts []part
	lines := bufio.NewReader(nil) // of one part after the other
	for {
		p, err := inner.NextRawPart()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		if len(parts) == storage.MaxBatch {
			return nil, fmt.Errorf("more than %d parts", storage.MaxBatch)
		}
		lines.Reset(p)
		resp, err := http.ReadResponse(lines, nil)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, smallAnswer))
		if err != nil && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		parts = append(parts, part{resp.StatusCode, resp.Header, text})
	}
}

func multipartReader(contentType string, r io.Reader) (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	if kind != "multipart/mixed" || params["boundary"] == "" {
		return nil, fmt.Errorf("%.60q is not a batch", contentType)
	}
	return multipart.NewReader(r, params["boundary"]), nil
}

// outcome reads the parts: one failed part alone, or one success for each write.
func (t *table) outcome(
	object string, writes []storage.Write, x *exchange, parts []part,
) ([]storage.ETag, error) {
	for i, p := range parts {
		if p.status < 300 {
			continue
		}
		service, message := serviceError(p.header, p.body)
		index, message := failedIndex(message, len(writes))
		if index < 0 && len(parts) == len(writes) {
			index = i
		}
		row := index < 0 || needsRow(writes[index].Mode)
		e := t.account.failure("transact", object, p.status, service, message, row)
		e.Index, e.RetryAfter = index, retryAfter(p.header)
		return nil, e
	}
	if len(parts) != len(writes) {
		return nil, t.account.unreadable("transact", object, x,
			fmt.Errorf("%d answers to %d writes", len(parts), len(writes)))
	}
	etags := make([]storage.ETag, len(writes))
	for i, p := range parts {
		etags[i] = storage.ETag(p.header.Get("ETag"))
		if etags[i] == "" && writes[i].Mode != storage.Remove {
			return nil, t.account.unreadable("transact", object, x,
				fmt.Errorf("write %d without an ETag", i))
		}
		if writes[i].Mode == storage.Remove {
			etags[i] = ""
		}
	}
	return etags, nil
}

// failedIndex reads the number off a message like "2:The specified entity already exists.", -1 if
// there is none.
func failedIndex(message string, writes int) (int, string) {
	if writes == 1 {
		_, rest := cutIndex(message)
		return 0, rest
	}
	i, rest := cutIndex(message)
	if i >= writes {
		return -1, message
	}
	return i, rest
}

func cutIndex(message string) (int, string) {
	digits, rest, ok := strings.Cut(message, ":")
	if !ok || !within(digits, 1, 3, digit) {
		return -1, message
	}
	n, _ := strconv.Atoi(digits)
	return n, rest
}
