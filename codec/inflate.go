package codec

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/flate"
)

// inflater unpacks DEFLATE streams that are in memory as a whole. With its window and tables it
// takes about 50 KB.
type inflater struct {
	in    bytes.Reader
	r     io.Reader // flate's: it takes in byte by byte, and not beyond the end of the stream
	probe [1]byte   // to see the end of the stream with
}

func newInflater() *inflater {
	f := &inflater{}
	f.r = flate.NewReader(&f.in)
	return f
}

var errMore = errors.New("more than was declared")

// inflate unpacks the stream at the beginning of in behind what is in s, want bytes in all, and
// says how many bytes of in it took. The buffer grows as the bytes come. On an error s holds what
// was unpacked until then, never more than want.
func (f *inflater) inflate(in []byte, s *slab, want int) (_ *slab, taken int, err error) {
	f.in.Reset(in)
	defer f.in.Reset(nil)
	if err := f.r.(flate.Resetter).Reset(&f.in, nil); err != nil {
		return s, 0, err
	}
	for err == nil {
		if have := len(s.b); have == cap(s.b) && have < want {
			s = s.grow(min(want-have, have))
		}
		free := s.b[len(s.b):min(cap(s.b), want)]
		if len(free) == 0 {
			free = f.probe[:]
		}
		var n int
		n, err = f.r.Read(free)
		if len(s.b)+n > want {
			err = errMore
			break
		}
		s.b = s.b[:len(s.b)+n]
	}
	if err == io.EOF {
		err = nil
	}
	return s, len(in) - f.in.Len(), err
}
