package image

// The reasons of the events that a Puller records.
const (
	// ReasonPulling: the image is being pulled, or waits for its turn.
	ReasonPulling = "Pulling"
	// ReasonPulled: the image is there.
	ReasonPulled = "Pulled"
	// ReasonFailed: the pull, or the start of the container, failed.
	ReasonFailed = "Failed"
	// ReasonBackOff: the pull has failed and is put off.
	ReasonBackOff = "BackOff"
	// ReasonInspectFailed: the name is none, or the runtime cannot say whether
	// it has the image.
	ReasonInspectFailed = "InspectFailed"
	// ReasonErrImageNeverPull: the image is not there and is not to be pulled.
	ReasonErrImageNeverPull = "ErrImageNeverPull"
)
