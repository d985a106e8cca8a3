// Package codec is the envelope: one queue message that carries many tasks of one segment of one
// run. Many tasks in one message are the largest lever beyond a queue's 2,000 messages per second.
//
// A [Builder] packs tasks into message text, [ReadHeader] reads the header without unpacking,
// [Open] unpacks them within [Limits], [Quarantined] and [Restamped] change a header without
// unpacking. For a message that is not an envelope the error is [ErrForeign]. The package is pure:
// no I/O, no clock.
//
// # The format, version 5
//
// An envelope is a gzip file (RFC 1952) with one member, encoded as standard base64 with padding
// and without line breaks, so that
//
//	base64 -d message.txt | gunzip
//
// shows its records. Base64 because a message must be legal XML text and an illegal character is
// replaced silently on the way; gzip because every language reads it. The header of the gzip file
// carries the metadata in its extra field.
//
// Integers are little-endian; uvarint and varint are those of encoding/binary, in their shortest
// form; a string is its length as a uvarint and its bytes.
//
//	offset  size  what
//	     0    10  gzip header: 1f 8b 08 04 00 00 00 00 00 ff
//	              (deflate, FEXTRA, no time, no hint, unknown system)
//	    10     2  XLEN: size of the extra field
//	    12     2  subfield id "QP"
//	    14     2  size of the subfield: XLEN - 4, it is the only one
//	    16     5  "qpump"
//	    21     1  version
//	    22     4  size in bytes of all that follows the header
//	    26        fields of the version
//	           0-2  zeros, so that the size of the header is a multiple of 3
//	             4  CRC-32 (IEEE) of all bytes before it
//	              -- end of the gzip header --
//	              DEFLATE stream of the records
//	             4  CRC-32 (IEEE) of the records (gzip)
//	             4  size of the records (gzip)
//
// Because the header is a multiple of three bytes, its text ends between two characters: it can be
// replaced without decoding what follows.
//
// The fields of version 5. Version 4 lacks those of the body, versions 2 and 3 also what is about
// "not now"; version 1 lacks sealed, too:
//
//	string    workload, at most 255 bytes of UTF-8
//	16 bytes  run
//	uvarint   segment, 32 bits
//	uvarint   attempt, 32 bits
//	uvarint   generation, 32 bits
//	uvarint   map version, 64 bits
//	uvarint   size of the records in bytes
//	8 bytes   xxhash64 (seed 0) of the records
//	8 bytes   sealed: when the envelope was ready to be put, by its maker's clock,
//	          in milliseconds since 1970, signed, 0 for not known
//	varint    when the first of its tasks was first told "not now", by the queue service's
//	          clock, in milliseconds since 1970
//	uvarint   how many deliveries ended so, 32 bits
//	uvarint   how many of them were of this very message, not more
//	string    the account whose blob has the body of the one task, 1 to 64 bytes of UTF-8
//	uvarint   size of that body in bytes
//	8 bytes   xxhash64 (seed 0) of that body
//	uvarint   number of spans of the n-set, at least 1; then for each span
//	  uvarint   its first n, less the least it could be: 0 for the first span,
//	            else the n after the last of the span before, plus 1
//	  uvarint   number of n in it, less 1
//	1 byte    0, or 1 and a cause:
//	  string    reason, at most 64 bytes of UTF-8
//	  string    detail, at most 1,024 bytes
//	  string    instance, at most 128 bytes
//	  uvarint   attempts, 32 bits
//	  varint    first attempt in milliseconds since 1970, 0 for none
//	  varint    last attempt
//
// The records are as many as the n-set has n, in its order and without gaps between them. A record
// is three strings: key, id, body; any bytes.
//
// In versions 3 to 5 trace contexts follow the records, to the end of what was packed, and count
// as records for sizes and checksums; an envelope of version 3 without one is damaged. A context is
//
//	uvarint   how many tasks have none since the task before with one
//	string    1 to 512 bytes: a W3C traceparent (https://www.w3.org/TR/trace-context/),
//	          and behind a line feed a tracestate, if there is one
//
// # Compression
//
// The stream is made by github.com/klauspost/compress at level 1, in ten to twenty chunks, and read
// by it. A writer and a reader of this package's own took 0.1 to 0.4 us less CPU time a task each,
// for about as many messages: too little for 1,400 lines to keep right.
//
// # Versions
//
// A reader of version n reads all versions up to n. The table's rows for the bytes before the
// fields and for the last 4 bytes of the header hold in every version, so a reader can tell a newer
// envelope that is intact ([ErrVersion]) from one that is damaged ([ErrCorrupt]). Any other change,
// a new field included, makes a new version. Writers never write a version above the one that the
// live members read ([Header.Version] given to [Builder.Reset]). They write version 3 only if a
// task has a context, version 4 only if a task was told "not now", and version 5 only for a single
// task whose body is in a blob: its record has an empty body.
//
// # Bounds
//
// A text is at most 65,536 characters. Builders pack at most 4 MiB of records and 32,768 tasks into
// an envelope; readers refuse more unless told otherwise ([Limits]).
package codec
