package azsim

import (
	"fmt"
	"strconv"
)

// tableError is a refusal by the Table service. index is the operation of a
// batch that it concerns, counted from 0, or noIndex.
type tableError struct {
	status  int
	code    string
	message string
	index   int
}

const noIndex = -1

func (e *tableError) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.code, e.message) }

// at says which operation of a batch was refused.
func (e *tableError) at(index int) *tableError {
	c := *e
	c.index = index
	return &c
}

func refuse(status int, code, message string) *tableError {
	return &tableError{status, code, message, noIndex}
}

// The refusals with the words of the service: recorded answers first, then the
// reference's list of Table service error codes.
var (
	errTableNotFound     = refuse(404, "TableNotFound", "The table specified does not exist.")
	errTableExists       = refuse(409, "TableAlreadyExists", "The table specified already exists.")
	errTableBeingDeleted = refuse(409, "TableBeingDeleted",
		"The specified table is being deleted. Try operation later.")
	errResourceNotFound = refuse(404, "ResourceNotFound", "The specified resource does not exist.")
	errEntityExists     = refuse(409, "EntityAlreadyExists", "The specified entity already exists.")
	errConditionNotMet  = refuse(412, "UpdateConditionNotSatisfied",
		"The update condition specified in the request was not satisfied.")
	errInvalidInput   = refuse(400, "InvalidInput", "One of the request inputs is not valid.")
	errPropertiesNeed = refuse(400, "PropertiesNeedValue",
		"The values are not specified for all properties in the entity.")
	errDuplicateProperty = refuse(400, "DuplicatePropertiesSpecified",
		"A property is specified more than one time.")
	errPropertyName     = refuse(400, "PropertyNameInvalid", "The property name is invalid.")
	errPropertyNameLong = refuse(400, "PropertyNameTooLong",
		"The property name exceeds the maximum allowed length (255).")
	errPropertyTooLarge = refuse(400, "PropertyValueTooLarge",
		"The property value exceeds the maximum allowed size (64KB). "+
			"If the property value is a string, it is UTF-16 encoded "+
			"and the maximum number of characters should be 32K or less.")
	errEntityTooLarge = refuse(400, "EntityTooLarge",
		"The entity is larger than the maximum allowed size (1MB).")
	errTooManyProperties = refuse(400, "TooManyProperties",
		"The entity contains more properties than allowed. "+
			"Each entity can include up to 252 properties to store data. "+
			"Each entity also has 3 system properties.")
	errKeyTooLarge = refuse(400, "KeyValueTooLarge",
		"The value specified for the PartitionKey or RowKey exceeds the maximum size permitted (1KB).")
	errNameCharacters   = refuse(400, "InvalidResourceName", messages["InvalidResourceName"])
	errNameLength       = refuse(400, "OutOfRangeInput", messages["OutOfRangeInput"])
	errMethodNotAllowed = refuse(405, "MethodNotAllowed",
		"The requested method is not allowed on the specified resource.")
	errNotImplemented = refuse(501, "NotImplemented",
		"The requested operation is not implemented on the specified resource.")
	errMethodNotUsingPost = refuse(400, "XMethodNotUsingPost",
		"The request uses X-HTTP-Method with an HTTP verb other than POST.")
	errMethodCount = refuse(400, "XMethodIncorrectCount",
		"More than one X-HTTP-Method is specified.")
	errMethodValue   = refuse(400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid.")
	errMissingHeader = refuse(400, "MissingRequiredHeader",
		"An HTTP header that's mandatory for this request is not specified.")
	errBothConditions = refuse(400, "InvalidInput",
		"Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. "+
			"Please specify either one of the headers or none of them.")
	errAtomFormat = refuse(415, "AtomFormatNotSupported", "Atom format is not supported.")
	errJSONFormat = refuse(415, "JsonFormatNotSupported", "JSON format is not supported.")
	errMediaType  = refuse(415, "MediaTypeNotSupported",
		"None of the provided media types are supported")
	errBodyTooLarge = refuse(413, "RequestBodyTooLarge", messages["RequestBodyTooLarge"])
	errBatchTooLong = refuse(400, "InvalidInput",
		"The batch request operation exceeds the maximum 100 changes per change set.")
	errInvalidXML      = refuse(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
	errBatchPartitions = refuse(400, "CommandsInBatchActOnDifferentPartitions",
		"All commands in a batch must operate on same entity group.")
)

func errNoneMatch(method string) *tableError {
	return refuse(400, "InvalidInput",
		fmt.Sprintf("If-None-Match HTTP header cannot be specified for %s operations.", method))
}

func errETag(etag string) *tableError {
	return refuse(400, "InvalidInput",
		fmt.Sprintf("The etag value '%s' specified in one of the request headers is not valid. "+
			"Please make sure only one etag value is specified and is valid.", etag))
}

func errOutOfRange(name, value string) *tableError {
	return refuse(400, "OutOfRangeInput",
		fmt.Sprintf("The '%s' parameter of value '%s' is out of range.", name, value))
}

func errDuplicateRow(row string) *tableError {
	return refuse(400, "InvalidDuplicateRow",
		fmt.Sprintf("A command with RowKey '%s' is already present in the batch. "+
			"An entity can appear only once in a batch.", row))
}

// answer is the refusal as sent: the JSON form of AZURE.md A4, in the metadata
// level of the request, without an x-ms-error-code header.
func (e *tableError) answer(r *request) reply {
	message := e.message
	if e.index != noIndex {
		message = strconv.Itoa(e.index) + ":" + message
	}
	a := r.fail(e.status, e.code, message)
	if r.speaksXML() {
		a.header.Set("X-Ms-Error-Code", e.code) // the only table answers recorded with it
		return a
	}
	a.header = tableHeader(r)
	level, _ := requestLevel(r) // the answer must be given in some format
	a.header.Set("Content-Type", contentType(level, spaced))
	return a
}

// odataXML is how the table service words a refusal of the operations that speak XML, as recorded
// for Set Table ACL: not the Error element of the other services, and no byte order mark.
func odataXML(r *request, e *tableError) []byte {
	b := []byte(`<?xml version="1.0" encoding="utf-8"?><m:error ` +
		`xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><m:code>`)
	b = appendXMLText(b, e.code)
	b = append(b, `</m:code><m:message xml:lang="en-US">`...)
	b = appendXMLText(b, e.message+"\nRequestId:"+r.id+"\nTime:"+r.now.Format(errorTimeFormat))
	return append(b, `</m:message></m:error>`...)
}
