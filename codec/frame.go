package codec

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// The frame is what stays the same in every version of the format: where the
// header is, where its checksum is, which version it has and how long the
// packed part behind it must be. doc.go has the layout.
const (
	gzipHeader   = 10             // the fixed part of a gzip header
	idAt         = gzipHeader + 2 // of the subfield, behind XLEN
	magicAt      = idAt + 4       // behind the subfield's id and length
	versionAt    = magicAt + len(magic)
	packedAt     = versionAt + 1
	fieldsAt     = packedAt + 4
	checkLen     = 4         // CRC-32 of the header at its end
	signatureLen = versionAt // bytes that recognise an envelope
	signatureTxt = signatureLen / 3 * 4

	magic = "qpump"

	// maxDeflateRatio is the most that DEFLATE can expand: a match of 258 bytes
	// in two bits.
	maxDeflateRatio = 1032
)

// strict refuses padding bits that are not zero, so that an envelope has only
// one text. It still skips line breaks; the lengths show those.
var strict = base64.StdEncoding.Strict()

// frameStart is the beginning of every header with the two lengths left 0:
// magic of gzip, deflate, flag FEXTRA, no time, no hint, unknown system, XLEN,
// subfield id and length, magic of ours.
const frameStart = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff" + "\x00\x00" + "QP" +
	"\x00\x00" + magic

// signature is the text of frameStart with 0 for the characters that depend on
// the lengths. 21 of its 28 characters are fixed.
var signature = func() (sig [signatureTxt]byte) {
	other := []byte(frameStart)
	for _, at := range [...]int{gzipHeader, gzipHeader + 1, idAt + 2, idAt + 3} {
		other[at] = 0xff
	}
	var text [signatureTxt]byte
	base64.StdEncoding.Encode(sig[:], []byte(frameStart))
	base64.StdEncoding.Encode(text[:], other)
	for i := range sig {
		if sig[i] != text[i] {
			sig[i] = 0
		}
	}
	return sig
}()

// maxDamage is how many characters of the signature may differ in a text that still counts as a
// damaged envelope. Without this tolerance a flipped bit at the start would turn an envelope into a
// foreign message, whose gibberish a handler would get as a task. Nine of the fixed characters
// differ in other gzip files, eight in those that have an extra field.
const maxDamage = 3

// recognise says whether text is an envelope: nil, or ErrForeign, ErrTruncated
// or ErrCorrupt.
func recognise(text []byte) error {
	damage := 0
	head := text[:min(len(text), signatureTxt)]
	for i, c := range head {
		if signature[i] != 0 && signature[i] != c {
			damage++
		}
	}
	switch {
	case damage > maxDamage:
		return ErrForeign
	case len(head) < signatureTxt:
		// The first 13 characters are fixed and already unlike any other text.
		if damage == 0 && len(head) >= 13 {
			return truncated("%d characters", len(text))
		}
		return ErrForeign
	case damage > 0:
		return corrupt("%d characters of the signature changed", damage)
	}
	return nil
}

// frame is a recognised envelope with its header checked and read.
type frame struct {
	Header
	body   []byte // text of the packed part: DEFLATE stream, CRC-32, ISIZE
	packed int    // its size in bytes once decoded, as the header declares
}

// readFrame checks and reads the header of text. If only the version is not
// understood, the frame has the version and nothing else.
func readFrame(text []byte) (frame, error) {
	if err := recognise(text); err != nil {
		return frame{}, err
	}
	if len(text) > maxText {
		return frame{}, corrupt("%d characters, a message has at most %d", len(text), maxText)
	}
	buf := newSlab(0) // most headers are a hundred bytes
	defer buf.free()
	head, err := readHead(buf.b, text)
	if err != nil {
		return frame{}, err
	}
	fr := frame{
		Header: Header{Version: head[versionAt]},
		body:   text[len(head)/3*4:],
		packed: int(binary.LittleEndian.Uint32(head[packedAt:])),
	}
	if fr.packed > maxText {
		return frame{}, corrupt("header: %d packed bytes cannot be", fr.packed)
	}
	switch {
	case fr.Version == 0:
		return frame{}, corrupt("header: version 0")
	case fr.Version > Version:
		return fr, wrap(ErrVersion, "%d, this program reads up to %d", fr.Version, Version)
	}
	f := fields{rest: head[fieldsAt : len(head)-checkLen]}
	h := readFields(&f, fr.Version, fr.packed)
	if f.err == nil && (len(f.rest) > 2 || len(f.rest) > 0 && f.rest[0] != 0 ||
		len(f.rest) > 1 && f.rest[1] != 0) {
		f.fail("more than the fields")
	}
	if f.err != nil {
		return frame{}, f.err
	}
	fr.Header = h
	return fr, nil
}

// readHead decodes only the header of a recognised text into buf and checks what every version has
// in common.
func readHead(buf, text []byte) ([]byte, error) {
	// 18 of the bytes that recognise has looked at hold both lengths.
	lengths, err := strict.AppendDecode(buf, text[:24])
	if err != nil || len(lengths) != 18 {
		return nil, corrupt("header is not base64")
	}
	extra := int(binary.LittleEndian.Uint16(lengths[gzipHeader:]))
	size := idAt + extra
	if sub := int(binary.LittleEndian.Uint16(lengths[idAt+2:])); sub != extra-4 ||
		size < fieldsAt+checkLen || size%3 != 0 {
		return nil, corrupt("header of %d bytes with a subfield of %d", size, sub)
	}
	if len(text) < size/3*4 {
		return nil, truncated("header needs %d characters of %d", size/3*4, len(text))
	}
	head, err := strict.AppendDecode(buf, text[:size/3*4])
	if err != nil || len(head) != size {
		return nil, corrupt("header is not base64")
	}
	end := size - checkLen
	if crc32.ChecksumIEEE(head[:end]) != binary.LittleEndian.Uint32(head[end:]) {
		return nil, corrupt("header: wrong checksum")
	}
	return head, nil
}

// checkLength compares the text of the packed part with the declared length.
// This, and not how unpacking fails, tells a truncated text from a changed one.
func (fr *frame) checkLength() error {
	switch want := base64.StdEncoding.EncodedLen(fr.packed); {
	case len(fr.body) < want:
		return truncated("%d characters of %d behind the header", len(fr.body), want)
	case len(fr.body) > want:
		return corrupt("%d characters behind the end", len(fr.body)-want)
	}
	return nil
}

// headSize is the size of a header whose fields take n bytes. Zeros fill it up
// to a multiple of three, so that its text ends on a character boundary: the
// header can be replaced without touching the text behind it.
func headSize(n int) int { return (fieldsAt + n + checkLen + 2) / 3 * 3 }

// appendHead appends the header of an envelope with that many packed bytes.
func appendHead(b []byte, h *Header, packed int) []byte {
	start := len(b)
	b = append(b, frameStart...)
	b = append(b, h.Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(packed))
	b = h.appendFields(b)
	size := headSize(len(b) - start - fieldsAt)
	for len(b)-start < size-checkLen {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint16(b[start+gzipHeader:], uint16(size-idAt))
	binary.LittleEndian.PutUint16(b[start+idAt+2:], uint16(size-idAt-4))
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}
