// Package datachannel is the form of the messages between clients of AWS Session Manager and its
// agents: a binary header, and a payload.
package datachannel

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The types of messages.
const (
	TypeInput  = "input_stream_data"
	TypeOutput = "output_stream_data"
	TypeAck    = "acknowledge"
	TypeClosed = "channel_closed"
	TypeStart  = "start_publication"
	TypePause  = "pause_publication"
)

// Kind is what the payload of a message of input or output is.
type Kind uint32

// The kinds of payloads.
const (
	KindData              Kind = 1
	KindSize              Kind = 3
	KindHandshakeRequest  Kind = 5
	KindHandshakeResponse Kind = 6
	KindHandshakeComplete Kind = 7
	KindFlag              Kind = 10
	KindStderr            Kind = 11
	KindExitCode          Kind = 12
)

// FlagTerminate is the payload of KindFlag that ends the session.
const FlagTerminate uint32 = 2

// flagsOfAck say that a message is the first and last of its sequence.
const flagsOfAck = 3

// Message is a message.
type Message struct {
	Type     string
	Sequence int64
	ID       [16]byte
	Kind     Kind
	Payload  []byte
}

// The offsets of what the header has. headerLength is up to the length of the payload, which
// follows it.
const (
	atType       = 4
	atVersion    = 36
	atCreated    = 40
	atSequence   = 48
	atFlags      = 56
	atID         = 64
	atDigest     = 80
	atKind       = 112
	headerLength = 116
	atPayload    = 120
)

// New returns a message with a new ID.
func New(kind string, sequence int64, payloadKind Kind, payload []byte) *Message {
	m := &Message{Type: kind, Sequence: sequence, Kind: payloadKind, Payload: payload}
	_, _ = rand.Read(m.ID[:])                               // it does not fail
	m.ID[6], m.ID[8] = m.ID[6]&0x0f|0x40, m.ID[8]&0x3f|0x80 // a UUID of version 4
	return m
}

// Marshal returns the message in its form on the wire.
func (m *Message) Marshal() []byte {
	out := make([]byte, atPayload, atPayload+len(m.Payload))
	order := binary.BigEndian
	order.PutUint32(out, headerLength)
	copy(out[atType:atVersion], m.Type+strings.Repeat(" ", atVersion-atType-len(m.Type)))
	order.PutUint32(out[atVersion:], 1)
	order.PutUint64(out[atCreated:], uint64(time.Now().UnixMilli())) // #nosec G115 -- after 1970
	order.PutUint64(out[atSequence:], uint64(m.Sequence))            // #nosec G115 -- not negative
	if m.Type == TypeAck {
		order.PutUint64(out[atFlags:], flagsOfAck)
	}
	copy(out[atID:], m.ID[8:]) // the lower half goes first
	copy(out[atID+8:], m.ID[:8])
	digest := sha256.Sum256(m.Payload)
	copy(out[atDigest:], digest[:])
	order.PutUint32(out[atKind:], uint32(m.Kind))
	order.PutUint32(out[headerLength:], uint32(len(m.Payload))) // #nosec G115 -- small
	return append(out, m.Payload...)
}

// Parse parses a message, and verifies its digest.
func Parse(data []byte) (*Message, error) {
	order := binary.BigEndian
	if len(data) < atPayload {
		return nil, fmt.Errorf("a message has %d bytes, less than its header", len(data))
	}
	start := uint64(order.Uint32(data)) + 4
	if start < atPayload || start > uint64(len(data)) {
		return nil, fmt.Errorf("a header of %d bytes is not valid", start)
	}
	m := &Message{
		Type:     strings.Trim(string(data[atType:atVersion]), " \x00"),
		Sequence: int64(order.Uint64(data[atSequence:])), // #nosec G115 -- compared, not used as a size
		Kind:     Kind(order.Uint32(data[atKind:])), Payload: data[start:],
	}
	copy(m.ID[8:], data[atID:])
	copy(m.ID[:8], data[atID+8:])
	if digest := sha256.Sum256(m.Payload); len(m.Payload) > 0 && !bytes.Equal(digest[:], data[atDigest:atKind]) && m.Type != TypeStart && m.Type != TypePause {
		return nil, errors.New("the digest of a message is not that of its payload")
	}
	return m, nil
}

// Acknowledged is the payload of TypeAck.
type Acknowledged struct {
	Type       string `json:"AcknowledgedMessageType"`
	ID         string `json:"AcknowledgedMessageId"`
	Sequence   int64  `json:"AcknowledgedMessageSequenceNumber"`
	Sequential bool   `json:"IsSequentialMessage"`
}

// Ack returns the message that acknowledges m.
func (m *Message) Ack() *Message {
	id := fmt.Sprintf("%x-%x-%x-%x-%x", m.ID[:4], m.ID[4:6], m.ID[6:8], m.ID[8:10], m.ID[10:])
	text, _ := json.Marshal(Acknowledged{m.Type, id, m.Sequence, true}) // cannot fail
	return New(TypeAck, 0, 0, text)
}

// Open is the first message of a client, in JSON.
type Open struct {
	MessageSchemaVersion, RequestID, TokenValue, ClientID, ClientVersion string
}

// MarshalJSON returns the message with the names that the service has.
func (o Open) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{
		"MessageSchemaVersion": o.MessageSchemaVersion, "RequestId": o.RequestID, "TokenValue": o.TokenValue, "ClientId": o.ClientID, "ClientVersion": o.ClientVersion,
	})
}

// HandshakeRequest is the payload of KindHandshakeRequest: what the agent asks of the client.
type HandshakeRequest struct {
	AgentVersion           string
	RequestedClientActions []Action
}

// Action is an action of a handshake: SessionType, which has its name in the parameters, or
// KMSEncryption.
type Action struct {
	ActionType       string
	ActionParameters json.RawMessage
}

// HandshakeResponse is the payload of KindHandshakeResponse.
type HandshakeResponse struct {
	ClientVersion          string
	ProcessedClientActions []ProcessedAction
	Errors                 []string
}

// ProcessedAction is what became of an action.
type ProcessedAction struct {
	ActionType   string
	ActionStatus int
	ActionResult any
	Error        string
}

// The values of ProcessedAction.ActionStatus.
const (
	ActionDone        = 1
	ActionFailed      = 2
	ActionUnsupported = 3
)

// Closed is the payload of TypeClosed: why the service closes the channel.
type Closed struct{ SessionId, Output string } //nolint:revive // the service's name

// Size is the payload of KindSize.
type Size struct {
	Cols uint32 `json:"cols"`
	Rows uint32 `json:"rows"`
}
