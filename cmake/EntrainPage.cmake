# Text files as constants of a C++ file.

# Writes `output`: kReportSkeleton and kReportStyle of report.html and report.css in `folder`, and
# report_scripts(), its scripts one after another. Each file may have 64 KiB: a compiler need not
# take longer literals.
function(entrain_report_page folder output)
  set(scripts)
  foreach(name report report_timeline report_controls report_charts report_loads report_sections)
    list(APPEND scripts ${folder}/${name}.js)
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/report.html ${folder}/report.css ${scripts})
  set(content "#include <string>\n#include <string_view>\n\nnamespace entrain {\n\n")
  file(READ ${folder}/report.html skeleton)
  file(READ ${folder}/report.css style)
  string(APPEND content "extern const std::string_view kReportSkeleton;\nextern const std::string_view kReportStyle;\n")
  string(APPEND content "std::string report_scripts();\n\n")
  string(APPEND content "const std::string_view kReportSkeleton = R\"page(${skeleton})page\";\n")
  string(APPEND content "const std::string_view kReportStyle = R\"page(${style})page\";\n")
  string(APPEND content "std::string report_scripts() {\n  std::string scripts;\n")
  foreach(script ${scripts})
    file(READ ${script} text)
    string(APPEND content "  scripts += R\"page(${text})page\";\n")
  endforeach()
  string(APPEND content "  return scripts;\n}\n\n}  // namespace entrain\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "@content@" @ONLY)
endfunction()
