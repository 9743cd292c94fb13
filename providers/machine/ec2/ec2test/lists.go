package ec2test

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// page is what a token stands for: where the list goes on, and of which filters it is.
type page struct {
	filters string
	from    int
}

func (s *Server) describe(in url.Values) (any, error) {
	if in.Has("MaxResults") && in.Has("InstanceId.1") {
		return nil, refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	var found []*Instance
	for n := 1; in.Has(fmt.Sprintf("InstanceId.%d", n)); n++ {
		i, err := s.byID(in.Get(fmt.Sprintf("InstanceId.%d", n)))
		if err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	if !in.Has("InstanceId.1") {
		found = s.instances
	}
	found, err := s.filtered(in, found, func(i *Instance, name string) (string, bool) {
		switch name {
		case "client-token":
			return i.Request.Get("ClientToken"), true
		case "instance-state-name":
			return i.State, true
		}
		return "", false
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(i *Instance) bool {
		i.unlisted--
		return i.unlisted >= 0
	})
	found, next, err := s.page(in, found)
	var answer struct {
		Reservations []instancesSet `xml:"reservationSet>item"`
		Next         string         `xml:"nextToken,omitempty"`
	}
	for _, i := range found {
		answer.Reservations = append(answer.Reservations, reservation(i))
	}
	answer.Next = next
	return answer, err
}

// describeSpot lists requests: the one of an instance has its number and its tags.
func (s *Server) describeSpot(in url.Values) (any, error) {
	var spot []*Instance
	for _, i := range s.instances {
		if i.Spot {
			spot = append(spot, i)
		}
	}
	found, err := s.filtered(in, spot, func(i *Instance, name string) (string, bool) { return statusOf(i), name == "status-code" })
	if err != nil {
		return nil, err
	}
	found, next, err := s.page(in, found)
	type request struct {
		ID       string `xml:"spotInstanceRequestId"`
		Instance string `xml:"instanceId"`
		Code     string `xml:"status>code"`
		Updated  string `xml:"status>updateTime"`
	}
	var answer struct {
		Requests []request `xml:"spotInstanceRequestSet>item"`
		Next     string    `xml:"nextToken,omitempty"`
	}
	for _, i := range found {
		updated := i.launched
		if !i.taken.IsZero() {
			updated = i.taken
		}
		answer.Requests = append(answer.Requests, request{"sir-" + i.ID[2:10], i.ID, statusOf(i), updated.UTC().Format("2006-01-02T15:04:05.000Z")})
	}
	answer.Next = next
	return answer, err
}

// statusOf is the status of the request of a spot instance: the last one at once.
func statusOf(i *Instance) string {
	switch {
	case !i.taken.IsZero():
		return i.takenCode
	case !i.ending.IsZero():
		return "instance-terminated-by-user"
	}
	return "fulfilled"
}

// filtered returns the instances that are known already, and match the filters of a request.
func (s *Server) filtered(in url.Values, all []*Instance, field func(i *Instance, name string) (string, bool)) (found []*Instance, err error) {
	for _, i := range all {
		matches := s.isVisible(i)
		for n := 1; in.Has(fmt.Sprintf("Filter.%d.Name", n)); n++ {
			name := in.Get(fmt.Sprintf("Filter.%d.Name", n))
			value, known := field(i, name)
			if key, ok := strings.CutPrefix(name, "tag:"); ok {
				value, known = i.Tags[key], true
			}
			if !known {
				return nil, refuse("InvalidParameterValue", "The filter '%s' is invalid", name)
			}
			one := false
			for k := 1; in.Has(fmt.Sprintf("Filter.%d.Value.%d", n, k)); k++ {
				one = one || like(in.Get(fmt.Sprintf("Filter.%d.Value.%d", n, k)), value)
			}
			matches = matches && one
		}
		if matches {
			found = append(found, i)
		}
	}
	return found, nil
}

// like reports whether a text matches a pattern of filters.
func like(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	switch c, rest := pattern[0], pattern[1:]; {
	case c == '*':
		return like(rest, text) || text != "" && like(pattern, text[1:])
	case c == '?':
		return text != "" && like(rest, text[1:])
	case c == '\\' && rest != "":
		return text != "" && text[0] == rest[0] && like(rest[1:], text[1:])
	default:
		return text != "" && text[0] == c && like(rest, text[1:])
	}
}

// page returns a page of a list, and the token of the next one.
func (s *Server) page(in url.Values, found []*Instance) (part []*Instance, next string, err error) {
	size, filters, from := s.PageSize, url.Values{}, 0
	if text := in.Get("MaxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 5 || n > 1000 {
			return nil, "", refuse("InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", text)
		}
		size = min(size, n)
	}
	for name, values := range in {
		if strings.HasPrefix(name, "Filter.") {
			filters[name] = values
		}
	}
	if token := in.Get("NextToken"); token != "" {
		p, ok := s.pages[token]
		if !ok || p.filters != filters.Encode() {
			return nil, "", refuse("InvalidPaginationToken", "The pagination token is not valid or has expired")
		}
		from = min(p.from, len(found))
	}
	part = found[from:]
	if len(part) > size {
		part, next = part[:size], rand.Text()
		s.pages[next] = page{filters.Encode(), from + size}
	}
	return part, next, nil
}
