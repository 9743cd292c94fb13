package runtimestream

import "encoding/binary"

// The frames of SPDY/3 that are needed here.
const (
	frameHeader = 8
	flagFin     = 1
	maxControl  = 64 << 10

	typeSynStream = 1
	typeSynReply  = 2
	typeRstStream = 3
	typePing      = 6
	typeHeaders   = 8
)

// zlibHeader begins the compressed headers of a connection. It names the dictionary of
// SPDY/3.
var zlibHeader = []byte{0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2}

// synStream returns the frame that opens a stream. Its headers are in a stored block,
// which needs no compressor, and an empty one, which flushes it.
func synStream(id uint32, headers []Header) []byte {
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(headers)))
	for _, h := range headers {
		for _, text := range []string{h.Name, h.Value} {
			plain = binary.BigEndian.AppendUint32(plain, uint32(len(text)))
			plain = append(plain, text...)
		}
	}
	frame := []byte{0x80, 3, 0, typeSynStream, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, id)
	frame = append(frame, 0, 0, 0, 0, 0, 0) // no other stream, priority and slot
	if id == 1 {
		frame = append(frame, zlibHeader...)
	}
	length := uint16(len(plain))
	frame = append(frame, 0)
	frame = binary.LittleEndian.AppendUint16(frame, length)
	frame = binary.LittleEndian.AppendUint16(frame, ^length)
	frame = append(frame, plain...)
	frame = append(frame, 0, 0, 0, 0xff, 0xff)
	setLength(frame, len(frame)-frameHeader)
	return frame
}

// setDataHeader writes the header of a data frame.
func setDataHeader(frame []byte, id uint32, length int, ends bool) {
	binary.BigEndian.PutUint32(frame, id)
	frame[4] = 0
	if ends {
		frame[4] = flagFin
	}
	setLength(frame, length)
}

func setLength(frame []byte, length int) {
	frame[5], frame[6], frame[7] = byte(length>>16), byte(length>>8), byte(length)
}
