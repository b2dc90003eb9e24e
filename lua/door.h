/* door.h - the one place that includes Lua's headers. Lua 5.4 is linked as the system's library. */
#ifndef TN_LUA_DOOR_H
#define TN_LUA_DOOR_H
#include "engine/base/base.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#endif
