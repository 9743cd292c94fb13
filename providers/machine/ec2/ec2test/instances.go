package ec2test

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Instance is an instance, with what it was made of.
type Instance struct {
	ID, Address, State string
	Tags               map[string]string
	UserData           string
	// Request are the parameters that it was made with.
	Request url.Values
	Spot    bool

	launched, ending, taken time.Time
	code, why               string // of its state
	takenCode               string // of its spot request
	unlisted                int    // so many lists lack it
	stop                    func()
}

// launch is what a client token stands for.
type launch struct {
	request  string
	instance *Instance
}

// types are those of instances that there are, and whether they are of Nitro.
var types = map[string]bool{"m7i.large": true, "m7a.large": true, "g5.xlarge": true, "t2.micro": false}

// Profile is the only instance profile.
const Profile = "pods"

const (
	pending, running, shuttingDown, terminated = "pending", "running", "shutting-down", "terminated"
	// noticeTime is how long a spot instance runs on once it is taken.
	noticeTime = 2 * time.Minute
)

// Instances returns all instances that have not been forgotten.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	var all []Instance
	for _, i := range s.instances {
		all = append(all, *i)
	}
	return all
}

// SetCapacity gives a subnet's zone capacity, or takes it.
func (s *Server) SetCapacity(subnet string, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking[subnet] = !has
}

// SetCapacityOf does the same for one type of instances.
func (s *Server) SetCapacityOf(instanceType, subnet string, has bool) {
	s.SetCapacity(instanceType+" "+subnet, has)
}

// SetDown puts a subnet's zone out of order, or in order again.
func (s *Server) SetDown(subnet string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[subnet] = down
}

// Interrupt takes a spot instance for its capacity: it has two minutes.
func (s *Server) Interrupt(id string) { s.InterruptAs(id, "instance-terminated-no-capacity") }

// InterruptAs does the same with another status of the spot request.
func (s *Server) InterruptAs(id, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.ID == id && i.Spot {
			i.taken, i.takenCode = s.World.Now(), code
		}
	}
}

// Omit has the next lists lack an instance, as one of the service's caches that is behind does.
func (s *Server) Omit(id string, lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.ID == id {
			i.unlisted = lists
		}
	}
}

// Kill ends an instance of the service's own accord.
func (s *Server) Kill(id, code, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.ID == id {
			s.end(i, s.World.Now(), code, why)
		}
	}
	s.advance()
}

func (s *Server) end(i *Instance, at time.Time, code, why string) {
	if i.ending.IsZero() {
		i.ending, i.code, i.why = at, code, why
	}
}

// advance brings all instances to the state of the time. s.mu is held.
func (s *Server) advance() {
	now := s.World.Now()
	s.instances = slices.DeleteFunc(s.instances, func(i *Instance) bool {
		if !i.taken.IsZero() && now.Sub(i.taken) >= noticeTime {
			s.end(i, i.taken.Add(noticeTime), "Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
		}
		switch {
		case i.ending.IsZero() && now.Sub(i.launched) < s.Step:
			i.State = pending
		case i.ending.IsZero():
			i.State = running
		case now.Sub(i.ending) < s.Step:
			i.State = shuttingDown
		default:
			i.State = terminated
			if i.stop != nil {
				i.stop()
				i.stop = nil
			}
			if now.Sub(i.ending) > s.Step+s.TagRetention {
				i.Tags = nil
			}
		}
		return i.State == terminated && now.Sub(i.ending) > s.Step+s.Retention
	})
}

func (s *Server) isVisible(i *Instance) bool { return s.World.Now().Sub(i.launched) >= s.Lag }

func (s *Server) run(in url.Values) (any, error) {
	digest := in.Encode()
	token := in.Get("ClientToken")
	if len(token) > 64 {
		return nil, refuse("InvalidClientToken", "The client token is too long")
	}
	if known, ok := s.tokens[token]; ok && token != "" {
		switch {
		case known.request != digest:
			return nil, refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		case known.instance == nil: // it was refused for want of capacity
		case known.instance.State == terminated:
			return nil, refuse("IdempotentInstanceTerminated", "The client token you have provided is associated with a terminated instance. Please use a different client token.")
		default:
			return s.created(known.instance), nil
		}
	}
	tags, err := s.checkRun(in)
	if err != nil {
		return nil, err
	}
	subnet := in.Get("NetworkInterface.1.SubnetId")
	if s.down[subnet] {
		return nil, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
	}
	if s.lacking[subnet] || s.lacking[in.Get("InstanceType")+" "+subnet] {
		if token != "" {
			s.tokens[token] = launch{digest, nil} // whose parameters count from then on
		}
		return nil, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InsufficientInstanceCapacity", Message: "We currently do not have sufficient capacity in the Availability Zone you requested."}
	}
	data, err := base64.StdEncoding.DecodeString(in.Get("UserData"))
	if err != nil || len(data) > 16<<10 {
		return nil, refuse("InvalidParameterValue", "User data is limited to 16384 bytes, in base64")
	}
	s.number++
	i := &Instance{
		ID: fmt.Sprintf("i-%017x", s.number), Address: fmt.Sprintf("10.0.%d.%d", s.number/200, s.number%200+10), State: pending, Tags: tags, UserData: string(data),
		Request: maps.Clone(in), Spot: in.Get("InstanceMarketOptions.MarketType") == "spot", launched: s.World.Now(),
	}
	if s.Boot != nil {
		i.Address, i.stop = s.Boot(*i)
	}
	s.instances = append(s.instances, i)
	if token != "" {
		s.tokens[token] = launch{digest, i}
	}
	return s.created(i), nil
}

// created is the answer of a creation.
func (s *Server) created(i *Instance) instancesSet {
	answer := reservation(i)
	if s.NoTags {
		answer.Items[0].Tags = nil
	}
	return answer
}

// checkRun refuses what EC2 refuses, and returns the tags of the instance.
func (s *Server) checkRun(in url.Values) (map[string]string, error) {
	switch {
	case in.Get("MinCount") != "1" || in.Get("MaxCount") != "1":
		return nil, refuse("MissingParameter", "The request must contain the parameters MinCount and MaxCount")
	case in.Get("ImageId") != ImageID:
		return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", in.Get("ImageId"))
	case in.Has("NetworkInterface.1.DeviceIndex") && (in.Has("SubnetId") || in.Has("SecurityGroupId.1")):
		return nil, refuse("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request")
	case !slices.Contains([]string{SubnetA, SubnetB}, in.Get("NetworkInterface.1.SubnetId")):
		return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", in.Get("NetworkInterface.1.SubnetId"))
	case in.Get("InstanceMarketOptions.MarketType") == "spot" && in.Get("InstanceInitiatedShutdownBehavior") != "terminate":
		return nil, refuse("InvalidParameterCombination", "InstanceInitiatedShutdownBehavior=stop is not supported for spot instances")
	}
	if _, ok := types[in.Get("InstanceType")]; !ok {
		return nil, refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", in.Get("InstanceType"))
	}
	if profile := in.Get("IamInstanceProfile.Name"); profile != "" && profile != Profile {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", profile)
	}
	size := in.Get("BlockDeviceMapping.1.Ebs.VolumeSize")
	if device := in.Get("BlockDeviceMapping.1.DeviceName"); device != "" && device != RootDevice && size == "" { // a further volume
		return nil, refuse("MissingParameter", "The request must contain the parameter size or snapshotId")
	}
	if size != "" {
		if n, err := strconv.Atoi(size); err != nil || n < 8 {
			return nil, refuse("InvalidBlockDeviceMapping", "Volume of size %sGB is smaller than snapshot, expect size >= 8GB", size)
		}
	}
	var ofInstance map[string]string
	for n := 1; in.Has(fmt.Sprintf("TagSpecification.%d.ResourceType", n)); n++ {
		kind := in.Get(fmt.Sprintf("TagSpecification.%d.ResourceType", n))
		tags := map[string]string{}
		for k := 1; in.Has(fmt.Sprintf("TagSpecification.%d.Tag.%d.Key", n, k)); k++ {
			key, value := in.Get(fmt.Sprintf("TagSpecification.%d.Tag.%d.Key", n, k)), in.Get(fmt.Sprintf("TagSpecification.%d.Tag.%d.Value", n, k))
			if key == "" || strings.HasPrefix(strings.ToLower(key), "aws:") {
				return nil, refuse("InvalidTagKey.Malformed", "Tag key cannot be empty or begin with aws:")
			}
			if _, twice := tags[key]; twice || utf8.RuneCountInString(key) > 128 || utf8.RuneCountInString(value) > 256 {
				return nil, refuse("InvalidParameterValue", "Tag %s is there twice, or too long", key)
			}
			tags[key] = value
		}
		switch {
		case len(tags) > 50:
			return nil, refuse("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
		case kind == "instance":
			ofInstance = tags
		case kind == "spot-instances-request" && in.Get("InstanceMarketOptions.MarketType") != "spot", !slices.Contains([]string{"volume", "network-interface", "spot-instances-request"}, kind):
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind)
		}
	}
	return ofInstance, nil
}

func (s *Server) terminate(in url.Values) (any, error) {
	i, err := s.byID(in.Get("InstanceId.1"))
	if err != nil {
		return nil, err
	}
	s.end(i, s.World.Now(), "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
	s.advance()
	return struct {
		IDs []string `xml:"instancesSet>item>instanceId"`
	}{[]string{i.ID}}, nil
}

func (s *Server) byID(id string) (*Instance, error) {
	for _, i := range s.instances {
		if i.ID == id && s.isVisible(i) {
			return i, nil
		}
	}
	return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
}

func (s *Server) console(in url.Values) (any, error) {
	i, err := s.byID(in.Get("InstanceId"))
	if err != nil {
		return nil, err
	}
	if in.Get("Latest") == "true" && !types[i.Request.Get("InstanceType")] {
		return nil, refuse("UnsupportedOperation", "This instance type does not support retrieving the latest console logs.")
	}
	return struct {
		ID     string `xml:"instanceId"`
		Output string `xml:"output"`
	}{i.ID, base64.StdEncoding.EncodeToString([]byte(consoleText))}, nil
}

// The form of answers.
type (
	item struct {
		ID         string  `xml:"instanceId"`
		ImageID    string  `xml:"imageId"`
		State      state   `xml:"instanceState"`
		Address    string  `xml:"privateIpAddress,omitempty"`
		Launched   string  `xml:"launchTime"`
		Lifecycle  string  `xml:"instanceLifecycle,omitempty"`
		RootDevice string  `xml:"rootDeviceName"`
		Reason     *reason `xml:"stateReason"`
		Tags       []tag   `xml:"tagSet>item"`
	}
	state  struct{ Name string }
	reason struct {
		Code    string `xml:"code"`
		Message string `xml:"message"`
	}
	tag struct {
		Key   string `xml:"key"`
		Value string `xml:"value"`
	}
	instancesSet struct {
		Items []item `xml:"instancesSet>item"`
	}
)

// MarshalXML implements xml.Marshaler.
func (s state) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	return e.EncodeElement(struct {
		Name string `xml:"name"`
	}{s.Name}, start)
}

func reservation(i *Instance) instancesSet { return instancesSet{[]item{itemOf(i)}} }

func itemOf(i *Instance) item {
	out := item{ID: i.ID, ImageID: ImageID, State: state{i.State}, Launched: i.launched.UTC().Format("2006-01-02T15:04:05.000Z"), RootDevice: RootDevice}
	if i.State != terminated {
		out.Address = i.Address
	}
	if i.Spot {
		out.Lifecycle = "spot"
	}
	if i.code != "" {
		out.Reason = &reason{i.code, i.why}
	}
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		out.Tags = append(out.Tags, tag{key, i.Tags[key]})
	}
	return out
}
