package admin

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// File is a file that was made.
type File struct{ Name, Text string }

// GenerateOptions are what the files say of one installation. Empty fields take the defaults.
type GenerateOptions struct {
	// Name is the name of the Deployments, the group of rules and the identity. Default: queuepump.
	Name string
	// Workload is the name in pump.yaml. Empty: the dashboard and the rules are for all workloads, and
	// a ScaledObject has the Deployment's name.
	Workload  string
	Namespace string   // of Kubernetes; default
	Image     string   // a processor's with its worker; queuepump:VERSION
	Accounts  []string // names of storage accounts
	Location  string   // of the accounts; westeurope
	// Prometheus is where KEDA asks: http://prometheus-server.monitoring.svc:80.
	Prometheus string
	Version    string // of the running program
}

// kinds are what can be made, with the name of each one's file.
var kinds = map[string]string{
	"alerts": "queuepump-alerts.yaml", "grafana": "queuepump-dashboard.json",
	"kubernetes": "queuepump-kubernetes.yaml", "keda": "queuepump-keda.yaml",
	"kubernetes-job": "queuepump-kubernetes-job.yaml",
	"bicep":          "queuepump-accounts.bicep", "terraform": "queuepump-accounts.tf",
}

//go:embed files
var files embed.FS

var (
	label           = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
	generateAccount = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	image           = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/:@+-]{0,300}$`)
	place           = regexp.MustCompile(`^[a-z0-9]{1,40}$`)
	address         = regexp.MustCompile(`^https?://[a-zA-Z0-9][a-zA-Z0-9._:/\[\]-]{0,300}$`)
	notTag          = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)
)

// Error says why an option cannot be used.
type Error struct{ Flag, Problem string }

func (e *Error) Error() string { return "--" + e.Flag + ": " + e.Problem }

// complete gives the options their defaults. It refuses characters that would mean something in the
// file that they become part of.
func (o GenerateOptions) complete(kind string) (GenerateOptions, error) {
	o.Version = cmp.Or(strings.Trim(notTag.ReplaceAllString(o.Version, "-"), "-."), "unknown")
	o.Name = cmp.Or(o.Name, "queuepump")
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.Image = cmp.Or(o.Image, "queuepump:"+o.Version)
	o.Location = cmp.Or(o.Location, "westeurope")
	o.Prometheus = cmp.Or(o.Prometheus, "http://prometheus-server.monitoring.svc:80")
	if kind == "keda" {
		o.Workload = cmp.Or(o.Workload, o.Name)
	}
	for _, c := range []struct {
		flag, value, fix string
		valid            *regexp.Regexp
	}{
		{"name", o.Name, "use 1 to 40 of a-z, 0-9 and -, beginning with a letter", label},
		{"namespace", o.Namespace, "use 1 to 40 of a-z, 0-9 and -, beginning with a letter", label},
		{"image", o.Image, "use a name as in registry.example/queuepump:1.2.3", image},
		{"location", o.Location, "use a region's name as in westeurope", place},
		{"prometheus", o.Prometheus, "use an address as in http://prometheus:9090", address},
	} {
		if !c.valid.MatchString(c.value) {
			return o, &Error{c.flag, fmt.Sprintf("%q is not possible; %s", c.value, c.fix)}
		}
	}
	if o.Workload != "" && !label.MatchString(o.Workload) {
		return o, &Error{"workload", fmt.Sprintf("%q is not a workload's name", o.Workload)}
	}
	if kind == "bicep" || kind == "terraform" {
		if len(o.Accounts) == 0 {
			return o, &Error{
				"account",
				"there is none; name each storage account to make; a name must be unique in all of Azure",
			}
		}
		o.Accounts = slices.Clone(o.Accounts)
		slices.Sort(o.Accounts)
		if len(slices.Compact(slices.Clone(o.Accounts))) < len(o.Accounts) {
			return o, &Error{"account", "one is named twice"}
		}
	}
	for _, name := range o.Accounts {
		if !generateAccount.MatchString(name) {
			return o, &Error{
				"account",
				fmt.Sprintf("%q is not a name of a storage account; use 3 to 24 of a-z and 0-9", name),
			}
		}
	}
	return o, nil
}

// GeneratedKinds are what Make can make.
func GeneratedKinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Generate makes the file of one of the kinds. The error for a wrong option is an [*Error].
func Generate(kind string, o GenerateOptions) (File, error) {
	o, err := o.complete(kind)
	if err != nil {
		return File{}, err
	}
	name := kinds[kind]
	// Rules have templates of their own in braces.
	t, err := template.New(name+".tmpl").Delims("[[", "]]").
		Funcs(template.FuncMap{"list": func(of ...string) []string { return of }}).
		ParseFS(files, "files/"+name+".tmpl")
	if err != nil {
		return File{}, err
	}
	var b strings.Builder
	err = t.Execute(&b, o)
	return File{name, b.String()}, err
}
