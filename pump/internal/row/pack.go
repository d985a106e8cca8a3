package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// Pack gives a value as JSON that is compressed by gzip, for a column of bytes. Its numbers must be
// finite.
func Pack(v any) []byte {
	text, _ := json.Marshal(v)
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.StatelessCompression) // fails for a wrong level only
	_, _ = z.Write(text)                                            // to memory
	_ = z.Close()
	return packed.Bytes()
}

// Unpack reads into v what Pack has made, of at most `most` bytes of JSON.
func Unpack(packed []byte, most int64, v any) error {
	z := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(z)
	err := z.Reset(bytes.NewReader(packed))
	var text bytes.Buffer
	if err == nil {
		_, err = text.ReadFrom(io.LimitReader(z, most+1))
	}
	if err == nil && int64(text.Len()) > most {
		err = fmt.Errorf("has more than %d bytes", most)
	}
	if err == nil {
		err = json.Unmarshal(text.Bytes(), v)
	}
	return err
}
