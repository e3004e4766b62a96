#include "case/result.h"
