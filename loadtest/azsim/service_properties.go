package azsim

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"net/http"
	"strings"
	"sync"
	"time"
)

// serviceProperties are the analytics settings and CORS rules of one service
// of an account. They are kept and given back, and change nothing else: the
// simulator writes no analytics and answers no browser.
type serviceProperties struct {
	mu  *sync.Mutex
	doc propertiesDoc // guarded by mu
}

// propertiesDoc is the document of Get and Set Service Properties, the same for queues and tables
// (learn.microsoft.com/rest/api/storageservices/set-queue-service-properties).
type propertiesDoc struct {
	XMLName       xml.Name     `xml:"StorageServiceProperties"`
	Logging       *loggingDoc  `xml:"Logging"`
	HourMetrics   *metricsDoc  `xml:"HourMetrics"`
	MinuteMetrics *metricsDoc  `xml:"MinuteMetrics"`
	Cors          *corsListDoc `xml:"Cors"`
}

type loggingDoc struct {
	Version         string       `xml:"Version"`
	Delete          bool         `xml:"Delete"`
	Read            bool         `xml:"Read"`
	Write           bool         `xml:"Write"`
	RetentionPolicy retentionDoc `xml:"RetentionPolicy"`
}

type metricsDoc struct {
	Version         string       `xml:"Version"`
	Enabled         bool         `xml:"Enabled"`
	IncludeAPIs     *bool        `xml:"IncludeAPIs"`
	RetentionPolicy retentionDoc `xml:"RetentionPolicy"`
}

type retentionDoc struct {
	Enabled bool `xml:"Enabled"`
	Days    *int `xml:"Days"`
}

type corsListDoc struct {
	Rules []corsDoc `xml:"CorsRule"`
}

type corsDoc struct {
	AllowedOrigins  string `xml:"AllowedOrigins"`
	AllowedMethods  string `xml:"AllowedMethods"`
	MaxAgeInSeconds int    `xml:"MaxAgeInSeconds"`
	ExposedHeaders  string `xml:"ExposedHeaders"`
	AllowedHeaders  string `xml:"AllowedHeaders"`
}

// defaultProperties are those of a fresh account.
func defaultProperties() serviceProperties {
	yes, week := true, 7
	return serviceProperties{mu: new(sync.Mutex), doc: propertiesDoc{
		Logging: &loggingDoc{Version: "1.0"},
		HourMetrics: &metricsDoc{
			Version: "1.0", Enabled: true, IncludeAPIs: &yes,
			RetentionPolicy: retentionDoc{Enabled: true, Days: &week},
		},
		MinuteMetrics: &metricsDoc{Version: "1.0"},
		Cors:          &corsListDoc{},
	}}
}

// routeService tells the operations on a service as a whole apart.
func (s *Sim) routeService(r *request) (*operation, reply) {
	comp := strings.ToLower(r.query.Get("comp"))
	kind := "Queue"
	props := &r.account.queueProperties
	if r.service == tableService {
		kind, props = "Table", &r.account.tableProperties
	}
	if r.service == blobService {
		return nil, unsupported(r) // no client of blobs here asks
	}
	op := &operation{cost: 1, resource: 's'}
	switch {
	case comp == "properties" && r.method == http.MethodGet:
		op.name, op.accountPermission = "Get"+kind+"ServiceProperties", "r"
		op.run = func() reply { return props.get(r) }
	case comp == "properties" && r.method == http.MethodPut:
		op.name, op.accountPermission = "Set"+kind+"ServiceProperties", "w"
		op.run = func() reply { return props.set(r) }
	case comp == "stats" && r.method == http.MethodGet:
		op.name, op.accountPermission = "Get"+kind+"ServiceStats", "r"
		op.run = func() reply { return serviceStats(r) }
	case comp == "properties" || comp == "stats":
		return nil, unsupported(r)
	default:
		return nil, badParameter(r, "comp", r.query.Get("comp"), "")
	}
	return op, reply{}
}

func (p *serviceProperties) get(r *request) reply {
	p.mu.Lock()
	doc := p.doc // what it points to is replaced, never changed
	p.mu.Unlock()
	b, err := xml.Marshal(doc)
	if err != nil {
		return r.fail(http.StatusInternalServerError, "InternalError", "")
	}
	return reply{status: http.StatusOK, header: xmlNoCache(), body: append([]byte(xmlProlog), b...)}
}

// set replaces the settings that the document names and keeps the others.
func (p *serviceProperties) set(r *request) reply {
	var doc propertiesDoc
	err := xml.Unmarshal(bytes.TrimPrefix(r.body, []byte(bom)), &doc)
	name, value, ok := doc.check()
	switch {
	case err != nil || !ok && name == "":
		return r.fail(http.StatusBadRequest, "InvalidXmlDocument", "")
	case !ok:
		return r.fail(http.StatusBadRequest, "InvalidXmlNodeValue", "",
			element{"XmlNodeName", name}, element{"XmlNodeValue", value})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doc.Logging = cmp.Or(doc.Logging, p.doc.Logging)
	p.doc.HourMetrics = cmp.Or(doc.HourMetrics, p.doc.HourMetrics)
	p.doc.MinuteMetrics = cmp.Or(doc.MinuteMetrics, p.doc.MinuteMetrics)
	p.doc.Cors = cmp.Or(doc.Cors, p.doc.Cors)
	return reply{status: http.StatusAccepted}
}

// maxCorsRules is the most CORS rules of a service.
const maxCorsRules = 5

// check finds the first node that the service would refuse.
func (d *propertiesDoc) check() (name, value string, ok bool) {
	retentions := []retentionDoc{}
	if d.Logging != nil {
		retentions = append(retentions, d.Logging.RetentionPolicy)
	}
	for _, m := range []*metricsDoc{d.HourMetrics, d.MinuteMetrics} {
		if m == nil {
			continue
		}
		if m.Enabled && m.IncludeAPIs == nil {
			return "IncludeAPIs", "", false
		}
		retentions = append(retentions, m.RetentionPolicy)
	}
	for _, p := range retentions {
		if p.Enabled && (p.Days == nil || *p.Days < 1 || *p.Days > 365) {
			return "", "", false
		}
	}
	if d.Cors == nil {
		return "", "", true
	}
	if len(d.Cors.Rules) > maxCorsRules {
		return "", "", false
	}
	for _, c := range d.Cors.Rules {
		switch {
		case c.AllowedOrigins == "":
			return "AllowedOrigins", "", false
		case c.AllowedMethods == "":
			return "AllowedMethods", "", false
		case c.MaxAgeInSeconds < 0:
			return "MaxAgeInSeconds", itoa(int64(c.MaxAgeInSeconds)), false
		}
	}
	return "", "", true
}

// serviceStats answers how far the secondary is behind: never more than a minute. Only the
// secondary endpoint, NAME-secondary, answers it; the primary gives an error.
func serviceStats(r *request) reply {
	if !r.secondary {
		return badParameter(r, "comp", "stats", "The statistics are those of the secondary endpoint.")
	}
	b := []byte(xmlProlog + "<StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>")
	b = appendTime(b, r.now.Add(-time.Minute))
	b = append(b, "</LastSyncTime></GeoReplication></StorageServiceStats>"...)
	return reply{status: http.StatusOK, header: xmlNoCache(), body: b}
}
