#include "comm/meeting.h"
