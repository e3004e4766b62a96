#include "case/case.h"
