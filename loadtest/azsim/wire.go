package azsim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// bom starts every XML body of Azure (AZURE.md A1), though not of Azurite.
const bom = "\uFEFF"

// xmlProlog is how an XML body starts.
const xmlProlog = bom + `<?xml version="1.0" encoding="utf-8"?>`

// errorTimeFormat is the time in error messages: seven digits, UTC.
const errorTimeFormat = "2006-01-02T15:04:05.0000000Z"

// element is one of the extra elements of an XML error body, such as
// QueryParameterName or MaxLimit.
type element struct{ name, value string }

// messages are the texts of the common error codes, for request.fail callers
// that leave theirs empty.
var messages = map[string]string{
	"AccountIsDisabled": "The specified account is disabled.",
	"QueueDisabled":     "The specified queue has been disabled by the administrator.",
	"ConditionNotMet":   "The condition specified using HTTP conditional header(s) is not met.",
	"AuthenticationFailed": "Server failed to authenticate the request. " +
		"Make sure the value of Authorization header is formed correctly including the signature.",
	"AuthorizationFailure": "This request is not authorized to perform this operation.",
	"AuthorizationPermissionMismatch": "This request is not authorized to perform this operation " +
		"using this permission.",
	"AuthorizationProtocolMismatch": "This request is not authorized to perform this operation " +
		"using this protocol.",
	"AuthorizationResourceTypeMismatch": "This request is not authorized to perform this operation " +
		"using this resource type.",
	"AuthorizationServiceMismatch": "This request is not authorized to perform this operation " +
		"using this service.",
	"EmptyMetadataKey": "The key for one of the metadata key-value pairs is empty.",
	"InternalError":    "The server encountered an internal error. Please retry the request.",
	"InvalidAuthenticationInfo": "Server failed to authenticate the request. " +
		"Please refer to the information in the www-authenticate header.",
	"InvalidHeaderValue": "The value for one of the HTTP headers is not in the correct format.",
	"InvalidMetadata": "The metadata specified is invalid. " +
		"It has characters that are not permitted.",
	"InvalidQueryParameterValue": "Value for one of the query parameters specified in " +
		"the request URI is invalid.",
	// the service's spelling
	"InvalidResourceName":    "The specifed resource name contains invalid characters.",
	"InvalidUri":             "The requested URI does not represent any resource on the server.",
	"InvalidXmlDocument":     "XML specified is not syntactically valid.",
	"InvalidXmlNodeValue":    "The value for one of the XML nodes is not in the correct format.",
	"BlobNotFound":           "The specified blob does not exist.",
	"ContainerAlreadyExists": "The specified container already exists.",
	"ContainerBeingDeleted":  "The specified container is being deleted.",
	"ContainerNotFound":      "The specified container does not exist.",
	"InvalidRange": "The range specified is invalid for the current size " +
		"of the resource.",
	"MissingRequiredHeader":      "An HTTP header that's mandatory for this request is not specified.",
	"MessageNotFound":            "The specified message does not exist.",
	"MetadataTooLarge":           "The metadata specified exceeds the maximum allowed limit (8KB).",
	"MissingContentLengthHeader": "The Content-Length header was not specified.",
	"MissingRequiredQueryParameter": "A query parameter that's mandatory for this " +
		"request is not specified.",
	"MissingRequiredXmlNode": "An XML node that's mandatory for this request is not specified.",
	"NoAuthenticationInformation": "Server failed to authenticate the request. " +
		"Please refer to the information in the www-authenticate header.",
	"OperationTimedOut": "Operation could not be completed within the specified time.",
	"OutOfRangeInput":   "The specified resource name length is not within the permissible limits.",
	"OutOfRangeQueryParameterValue": "One of the query parameters specified in the request URI " +
		"is outside the permissible range.",
	"PopReceiptMismatch": "The specified pop receipt did not match the pop " +
		"receipt for a dequeued message.",
	"QueueAlreadyExists":  "The specified queue already exists.",
	"QueueBeingDeleted":   "The specified queue is being deleted.",
	"QueueNotFound":       "The specified queue does not exist.",
	"RequestBodyTooLarge": "The request body is too large and exceeds the maximum permissible limit.",
	"ResourceNotFound":    "The specified resource does not exist.",
	"ServerBusy": "The server is currently unable to receive requests. " +
		"Please retry your request.",
	"UnsupportedHttpVerb": "The resource doesn't support specified Http Verb.",

	"WriteOperationNotSupportedOnSecondary": "Write operations are not allowed.",
}

// fail makes the answer to a request that went wrong, in the form of its
// service: XML for queues and blobs (AZURE.md A1), for tables JSON (A4), or OData's XML
// where the request speaks XML. Only those two have room for extra
// elements and send x-ms-error-code. An empty message takes the code's own.
func (r *request) fail(status int, code, message string, extra ...element) reply {
	message = cmp.Or(message, messages[code])
	switch {
	case r.service != tableService:
		return failXML(status, code, r.stamped(message), extra)
	case r.speaksXML():
		return reply{
			status: status, code: code, header: xmlHeader(),
			body: odataXML(r, refuse(status, code, message)),
		}
	default:
		return failJSON(status, code, r.stamped(message))
	}
}

// stamped adds what every error message ends with.
func (r *request) stamped(message string) string {
	return message + "\nRequestId:" + r.id + "\nTime:" + r.now.Format(errorTimeFormat)
}

// speaksXML reports whether an operation of the table service is one of the few with bodies in XML:
// service properties, statistics and access policies.
func (r *request) speaksXML() bool {
	switch r.query.Get("comp") {
	case "acl", "properties", "stats":
		return true
	}
	return false
}

func failXML(status int, code, message string, extra []element) reply {
	b := make([]byte, 0, 512)
	b = append(b, xmlProlog+"<Error><Code>"...)
	b = append(b, code...)
	b = append(b, "</Code><Message>"...)
	b = appendXMLText(b, legalXML(message))
	b = append(b, "</Message>"...)
	for _, e := range extra {
		b = appendElement(b, e.name, legalXML(e.value))
	}
	b = append(b, "</Error>"...)
	return reply{status: status, code: code, body: b, header: http.Header{
		"Content-Type":    {"application/xml"},
		"Content-Length":  {strconv.Itoa(len(b))},
		"X-Ms-Error-Code": {code},
	}}
}

func failJSON(status int, code, message string) reply {
	type text struct {
		Lang  string `json:"lang"`
		Value string `json:"value"`
	}
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message text   `json:"message"`
		} `json:"odata.error"`
	}
	body.Error.Code = code
	body.Error.Message = text{"en-US", message}
	b, err := json.Marshal(body)
	if err != nil { // strings always marshal
		panic(err)
	}
	return reply{status: status, code: code, body: b, header: http.Header{
		"Content-Type": {
			"application/json; odata=minimalmetadata; streaming=true; charset=utf-8",
		},
		"Cache-Control":          {"no-cache"},
		"X-Content-Type-Options": {"nosniff"},
	}}
}

// legalXML makes a text of a request fit for an XML document: what XML does not allow becomes
// U+FFFD.
func legalXML(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD ||
			r >= 0x10000 {
			return r
		}
		return utf8.RuneError
	}, s)
}

// appendElement appends <name>value</name>, or the empty element form that
// Azure writes, with its blank.
func appendElement(b []byte, name, value string) []byte {
	b = append(b, '<')
	b = append(b, name...)
	if value == "" {
		return append(b, " />"...)
	}
	b = append(b, '>')
	b = appendXMLText(b, value)
	b = append(b, "</"...)
	b = append(b, name...)
	return append(b, '>')
}

// appendXMLText appends s as XML character data.
func appendXMLText[T string | []byte](b []byte, s T) []byte {
	start := 0
	for i := range len(s) {
		var esc string
		switch s[i] {
		case '&':
			esc = "&amp;"
		case '<':
			esc = "&lt;"
		case '>':
			esc = "&gt;"
		case '\r': // a bare one would come back as \n
			esc = "&#xD;"
		default:
			continue
		}
		b = append(b, s[start:i]...)
		b = append(b, esc...)
		start = i + 1
	}
	return append(b, s[start:]...)
}

// appendXMLAttr appends s as the inside of a double-quoted attribute.
func appendXMLAttr(b []byte, s string) []byte {
	return appendXMLText(b, strings.ReplaceAll(s, `"`, "'"))
}

// appendTime appends t as XML bodies of the queue service write times.
func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, http.TimeFormat)
}

// xmlHeader is the header of an XML answer.
func xmlHeader() http.Header { return http.Header{"Content-Type": {"application/xml"}} }
