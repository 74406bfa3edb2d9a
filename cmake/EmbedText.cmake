# fq_embed_text(TARGET SYMBOL FILE): makes FILE, in the folder at hand, the string `const char
# SYMBOL[]` of the target. A change of FILE configures anew.

function(fq_embed_text target symbol file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
       "// Made from @file@.\nextern const char @symbol@[];\nconst char @symbol@[] =\n    \"@text@\";\n")
  target_sources(${target} PRIVATE ${source})
endfunction()
